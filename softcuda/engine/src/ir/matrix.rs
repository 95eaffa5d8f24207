//! What a matrix product is made of: the detail of [`super::CollectiveFn::Mma`] and [`super::CollectiveFn::Wmma`].

/// Elements of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Element { F16, Bf16, Tf32, F32, F64, S8, U8, S4, U4, B1, S32, E4m3, E5m2, E3m2, E2m3, E2m1 }

impl Element {
    const ALL: [Element; 16] = {
        use Element::*;
        [F16, Bf16, Tf32, F32, F64, S8, U8, S4, U4, B1, S32, E4m3, E5m2, E3m2, E2m3, E2m1]
    };

    pub fn parse(word: &str) -> Option<Element> {
        Some(match word {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "f32" => Element::F32,
            "f64" => Element::F64,
            "s8" => Element::S8,
            "u8" => Element::U8,
            "s4" => Element::S4,
            "u4" => Element::U4,
            "b1" => Element::B1,
            "s32" => Element::S32,
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            "e3m2" => Element::E3m2,
            "e2m3" => Element::E2m3,
            "e2m1" => Element::E2m1,
            _ => return None,
        })
    }

    /// Width in a register: floats of 4 and 6 bits lie in a byte each (`.kind::f8f6f4`).
    pub fn bits(self) -> u32 {
        match self {
            Element::F64 => 64,
            Element::Tf32 | Element::F32 | Element::S32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::S8 | Element::U8 => 8,
            Element::E4m3 | Element::E5m2 | Element::E3m2 | Element::E2m3 | Element::E2m1 => 8,
            Element::S4 | Element::U4 => 4,
            Element::B1 => 1,
        }
    }
}

/// `d = a · b + c`, with `a` of m × k and `b` of k × n elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: Element,
    pub b: Element,
    pub c: Element,
    pub d: Element,
    /// `.satfinite`: integers clamp.
    pub saturate: bool,
    /// Of single bits: `and` instead of `xor` before they are counted.
    pub and: bool,
    /// Only of [`Product::quads`]: whether a lane holds four elements of one column of `a` (`.col`), and of one row of `b` (`.row`),
    /// and not of a row and a column.
    pub across: [bool; 2],
    /// `mma.sp`: half of each row of `a` is zero and not stored; which lanes of a quad say where the rest stands.
    pub sparse: Option<u32>,
}

impl Product {
    /// As one number.
    pub fn code(self) -> u64 {
        let elements = [self.a, self.b, self.c, self.d];
        let packed = elements.iter().enumerate().map(|(i, e)| (*e as u64) << (32 + 4 * i)).sum::<u64>();
        u64::from(self.m | self.n << 8 | self.k << 16)
            | packed
            | u64::from(self.saturate) << 48
            | u64::from(self.and) << 49
            | u64::from(self.across[0]) << 50
            | u64::from(self.across[1]) << 51
            | self.sparse.map_or(0, |selector| 1 << 52 | u64::from(selector) << 53)
    }

    /// From [`Product::code`].
    pub fn from_code(code: u64) -> Option<Product> {
        let element = |i: u32| Element::ALL.get((code >> (32 + 4 * i) & 15) as usize).copied();
        Some(Product {
            m: code as u32 & 0xff,
            n: code as u32 >> 8 & 0xff,
            k: code as u32 >> 16,
            a: element(0)?,
            b: element(1)?,
            c: element(2)?,
            d: element(3)?,
            saturate: code >> 48 & 1 == 1,
            and: code >> 49 & 1 == 1,
            across: [code >> 50 & 1 == 1, code >> 51 & 1 == 1],
            sparse: (code >> 52 & 1 == 1).then_some((code >> 53) as u32),
        })
    }

    /// Whether these are four products, each of the 8 lanes of a pair of quads: `mma.m8n8k4` of f16.
    pub fn quads(self) -> bool {
        self.a == Element::F16 && (self.m, self.n, self.k) == (8, 8, 4)
    }

    /// 32-bit words that each of 32 lanes holds of `rows` × `columns` elements.
    fn words(self, rows: u32, columns: u32, e: Element) -> u32 {
        let products = if self.quads() { 4 } else { 1 };
        products * rows * columns * e.bits() / 1024
    }

    /// Elements of a row of `a` that are stored.
    pub fn stored(self) -> u32 {
        if self.sparse.is_some() { self.k / 2 } else { self.k }
    }

    pub fn words_a(self) -> u32 {
        self.words(self.m, self.stored(), self.a)
    }

    pub fn words_b(self) -> u32 {
        self.words(self.k, self.n, self.b)
    }

    pub fn words_c(self) -> u32 {
        self.words(self.m, self.n, self.c)
    }

    pub fn words_d(self) -> u32 {
        self.words(self.m, self.n, self.d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_survives_its_number() {
        for (i, a) in Element::ALL.into_iter().enumerate() {
            let b = Element::ALL[(i + 5) % 16];
            let p = Product {
                m: 16,
                n: 8,
                k: 256,
                a,
                b,
                c: b,
                d: a,
                saturate: i % 2 == 0,
                and: i % 3 == 0,
                across: [i % 5 == 0, i % 7 == 0],
                sparse: (i % 3 > 0).then_some(i as u32 % 4),
            };
            assert_eq!(Product::from_code(p.code()), Some(p));
        }
    }
}

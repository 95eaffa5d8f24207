//! Registers as rows of vectors, and in the group's frame.

use super::emit::Vector;
use super::plan::Frame;
use super::shape::Shape;
use crate::codegen::clif::emit::flags;
use crate::ir::{Class, Opd, Reg, Ty};
use cranelift_codegen::ir::{ConstantData, InstBuilder, MemFlagsData, Type, Value, types};

/// One value of all lanes: a row of vectors, lane 0 first.
pub type Row = Vec<Value>;

/// The vector type of a class; `None` where a register that differs lives in the frame.
pub fn vector_type(c: Class) -> Option<Type> {
    Some(match c {
        Class::Pred | Class::I32 => types::I32X4,
        Class::I64 => types::I64X2,
        Class::F32 => types::F32X4,
        Class::F64 => types::F64X2,
        Class::I8 | Class::I16 | Class::I128 => return None,
    })
}

/// Accesses that were checked, at any alignment.
pub fn unaligned() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// The bytes of a shuffle that picks elements of `bytes` bytes, numbered over both operands.
pub fn picks(bytes: u8, elements: &[u8]) -> ConstantData {
    let all: Vec<u8> = elements.iter().flat_map(|e| (0..bytes).map(move |i| e * bytes + i)).collect();
    ConstantData::from(all.as_slice())
}

impl Vector<'_> {
    pub fn class(&self, r: Reg) -> Class {
        self.plan.f.regs[r as usize]
    }

    pub fn differs(&self, r: Reg) -> bool {
        self.plan.differs(r)
    }

    /// Whether a register is a row of vectors.
    pub fn in_vectors(&self, r: Reg) -> bool {
        self.differs(r) && vector_type(self.class(r)).is_some()
    }

    pub fn constant(&mut self, t: Type, bytes: &[u8]) -> Value {
        let c = self.e.b.func.dfg.constants.insert(ConstantData::from(bytes));
        self.e.b.ins().vconst(t, c)
    }

    /// The same bits in all lanes of one vector.
    pub fn all(&mut self, t: Type, bits: u64) -> Value {
        let bytes = if t.lane_bits() == 64 {
            bits.to_le_bytes().repeat(2)
        } else {
            (bits as u32).to_le_bytes().repeat(4)
        };
        self.constant(t, &bytes)
    }

    pub fn shuffle(&mut self, a: Value, b: Value, bytes: u8, elements: &[u8]) -> Value {
        let t = self.e.b.func.dfg.value_type(a);
        let (a, b) = (self.cast(types::I8X16, a), self.cast(types::I8X16, b));
        let mask = self.e.b.func.dfg.immediates.push(picks(bytes, elements));
        let v = self.e.b.ins().shuffle(a, b, mask);
        self.cast(t, v)
    }

    /// The same bits as another vector type.
    pub fn cast(&mut self, t: Type, v: Value) -> Value {
        if self.e.b.func.dfg.value_type(v) == t {
            return v;
        }
        let little = MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little);
        self.e.b.ins().bitcast(t, little, v)
    }

    pub fn vectors(&self, t: Type) -> usize {
        (self.width / t.lane_count()) as usize
    }

    /// A scalar in all lanes.
    pub fn spread(&mut self, class: Class, v: Value) -> Option<Row> {
        let t = vector_type(class)?;
        let v = if class == Class::Pred { self.mask_of(v) } else { v };
        let one = self.e.b.ins().splat(t, v);
        Some(vec![one; self.vectors(t)])
    }

    /// A predicate as a mask of 32 bits.
    fn mask_of(&mut self, p: Value) -> Value {
        let v = self.e.b.ins().uextend(types::I32, p);
        self.e.b.ins().ineg(v)
    }

    /// Lane 0's value plus a multiple of the lane, as a row.
    pub fn slope(&mut self, class: Class, base: Value, stride: i64) -> Option<Row> {
        let row = self.spread(class, base)?;
        if stride == 0 {
            return Some(row);
        }
        let t = vector_type(class)?;
        let per = t.lane_count() as i64;
        let mut out = Vec::with_capacity(row.len());
        for (i, v) in row.into_iter().enumerate() {
            let lanes = (0..per).map(|j| stride.wrapping_mul(i as i64 * per + j));
            let bytes: Vec<u8> = if t.lane_bits() == 64 {
                lanes.flat_map(i64::to_le_bytes).collect()
            } else {
                lanes.flat_map(|l| (l as i32).to_le_bytes()).collect()
            };
            let c = self.constant(t, &bytes);
            out.push(self.e.b.ins().iadd(v, c));
        }
        Some(out)
    }

    /// A register as a row of its own class.
    pub fn row(&mut self, r: Reg) -> Option<Row> {
        let class = self.class(r);
        match self.plan.shapes[r as usize] {
            Shape::Lanes if vector_type(class).is_some() => {
                let vars = self.vars[r as usize].clone();
                Some(vars.iter().map(|v| self.e.b.use_var(*v)).collect())
            }
            Shape::Lanes => None,
            shape => {
                let base = self.e.get(r);
                let stride = if let Shape::Affine(s) = shape { s } else { 0 };
                self.slope(class, base, stride)
            }
        }
    }

    /// An operand read as `ty`; `None`: not as vectors.
    pub fn operand(&mut self, ty: Ty, o: &Opd) -> Option<Row> {
        if ty.bytes() < 4 && ty != Ty::Pred {
            return None;
        }
        match (o, self.plan.shapes().operand(ty, o)) {
            (Opd::Reg(r), Shape::Lanes) => {
                let row = self.row(*r)?;
                self.fit(row, self.class(*r), ty.class(), ty.signed())
            }
            (Opd::Special(_) | Opd::Sym(..), Shape::Lanes) => None,
            (_, shape) => {
                let base = self.e.value(ty, o);
                let stride = if let Shape::Affine(s) = shape { s } else { 0 };
                self.slope(ty.class(), base, stride)
            }
        }
    }

    /// Bits of one class as another: cut, or extended.
    pub fn fit(&mut self, row: Row, from: Class, to: Class, signed: bool) -> Option<Row> {
        let (have, want) = (vector_type(from)?, vector_type(to)?);
        if (from == Class::Pred) != (to == Class::Pred) {
            return None;
        }
        if have.lane_bits() == want.lane_bits() {
            return Some(row.into_iter().map(|v| self.cast(want, v)).collect());
        }
        if have.lane_bits() > want.lane_bits() {
            let low = row.chunks(2).map(|p| {
                let v = self.shuffle(p[0], p[1], 4, &[0, 2, 4, 6]);
                self.cast(want, v)
            });
            return Some(low.collect());
        }
        let mut out = Vec::with_capacity(row.len() * 2);
        for v in row {
            let v = self.cast(types::I32X4, v);
            for high in [false, true] {
                let v = match (signed, high) {
                    (true, false) => self.e.b.ins().swiden_low(v),
                    (true, true) => self.e.b.ins().swiden_high(v),
                    (false, false) => self.e.b.ins().uwiden_low(v),
                    (false, true) => self.e.b.ins().uwiden_high(v),
                };
                out.push(self.cast(want, v));
            }
        }
        Some(out)
    }

    /// A mask of 32 bits a lane as one of the width of `t`.
    pub fn masks(&mut self, mask: &Row, t: Type) -> Row {
        if t.lane_bits() == 32 {
            return mask.clone();
        }
        let mut out = Vec::with_capacity(mask.len() * 2);
        for m in mask {
            out.push(self.e.b.ins().swiden_low(*m));
            out.push(self.e.b.ins().swiden_high(*m));
        }
        out
    }

    /// A mask of the width of `t` as one of 32 bits a lane.
    pub fn narrowed_mask(&mut self, row: Row, t: Type) -> Row {
        if t.lane_bits() == 32 {
            return row;
        }
        row.chunks(2)
            .map(|p| {
                let v = self.shuffle(p[0], p[1], 4, &[0, 2, 4, 6]);
                self.cast(types::I32X4, v)
            })
            .collect()
    }

    /// Where the mask is set `a`, else `b`; each of vector type `t`.
    pub fn choose(&mut self, mask: &Row, t: Type, a: &Row, b: &Row) -> Row {
        let masks = self.masks(mask, t);
        let int = if t.lane_bits() == 64 { types::I64X2 } else { types::I32X4 };
        let mut out = Vec::with_capacity(a.len());
        for ((m, a), b) in masks.into_iter().zip(a).zip(b) {
            let (m, a, b) = (self.cast(int, m), self.cast(int, *a), self.cast(int, *b));
            let v = self.e.b.ins().blendv(m, a, b);
            out.push(self.cast(t, v));
        }
        out
    }

    /// Writes a row to a register that is one.
    pub fn define(&mut self, r: Reg, row: &Row) {
        let vars = self.vars[r as usize].clone();
        for (var, v) in vars.iter().zip(row) {
            self.e.b.def_var(*var, *v);
        }
    }

    /// Copies what scalar code computed for all lanes to a register that differs.
    pub fn widen_result(&mut self, r: Reg, stride: i64) {
        let class = self.class(r);
        let v = self.e.get(r);
        if let Some(row) = self.slope(class, v, stride) {
            return self.define(r, &row);
        }
        let at = self.place(r);
        let base = self.frame_base();
        for lane in 0..i64::from(self.width) {
            let o = at as i64 + lane * i64::from(Frame::lane_bytes(class));
            self.e.b.ins().store(flags(), v, base, o as i32);
        }
    }

    // ---- the frame

    pub fn frame_base(&mut self) -> Value {
        self.e.b.ins().stack_addr(types::I64, self.slot, 0)
    }

    pub fn place(&self, r: Reg) -> u32 {
        self.plan.frame.place(r, self.class(r), self.width)
    }

    /// Puts a register to its place in the frame.
    pub fn spill(&mut self, r: Reg) {
        let at = self.place(r) as i32;
        let base = self.frame_base();
        if self.in_vectors(r) {
            let row = self.row(r).unwrap_or_default();
            for (i, v) in row.into_iter().enumerate() {
                self.e.b.ins().store(unaligned(), v, base, at + 16 * i as i32);
            }
        } else if !self.differs(r) {
            let v = self.e.get(r);
            self.e.b.ins().store(flags(), v, base, at);
        }
    }

    /// Takes a register that differs from its place in the frame.
    pub fn reload(&mut self, r: Reg) {
        let (true, Some(t)) = (self.differs(r), vector_type(self.class(r))) else { return };
        let at = self.place(r) as i32;
        let base = self.frame_base();
        let row: Row = (0..self.vectors(t))
            .map(|i| self.e.b.ins().load(t, unaligned(), base, at + 16 * i as i32))
            .collect();
        self.define(r, &row);
    }

    /// The lanes of a mask as bits.
    pub fn bits(&mut self, mask: &Row) -> Value {
        let mut all = self.e.imm(types::I32, 0);
        for (i, m) in mask.iter().enumerate() {
            let b = self.e.b.ins().vhigh_bits(types::I32, *m);
            let n = self.e.imm(types::I32, 4 * i as i64);
            let b = if i == 0 { b } else { self.e.b.ins().ishl(b, n) };
            all = if i == 0 { b } else { self.e.b.ins().bor(all, b) };
        }
        all
    }
}

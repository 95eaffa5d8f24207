//! What travels beside an image: JIT options, a link's inputs, and the table of contents that a load answers with.

use crate::wire::codec::{BadRecord, Reader, Wire, Writer};

macro_rules! wire_struct {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$fdoc:meta])* pub $field:ident: $t:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t),* }
        impl Wire for $name {
            fn wire_len(&self) -> usize {
                0 $(+ self.$field.wire_len())*
            }
            fn put(&self, to: &mut Writer<'_>) {
                $(self.$field.put(to);)*
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, BadRecord> {
                Ok(Self { $($field: Wire::get(from)?),* })
            }
        }
        impl $name {
            /// The encoding as bytes of its own.
            pub fn to_bytes(&self) -> Vec<u8> {
                let mut bytes = vec![0; self.wire_len()];
                self.put(&mut Writer::over(&mut bytes));
                bytes
            }
            /// Reads what [`to_bytes`](Self::to_bytes) made, all of it.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
                let mut from = Reader::new(bytes);
                let value = Self::get(&mut from)?;
                from.end()?;
                Ok(value)
            }
        }
    };
}

/// A list: a count, then the items. Items take at least 8 bytes, so a lying count cannot ask for more room than the
/// record is long.
impl<T: Wire + Item> Wire for Vec<T> {
    fn wire_len(&self) -> usize {
        8 + self.iter().map(Wire::wire_len).sum::<usize>()
    }
    fn put(&self, to: &mut Writer<'_>) {
        to.word(self.len() as u64);
        self.iter().for_each(|item| item.put(to));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, BadRecord> {
        let count = usize::get(from)?;
        if count > from.left() / 8 {
            return Err(BadRecord::OutOfRange);
        }
        (0..count).map(|_| T::get(from)).collect()
    }
}

/// What may stand in a list (`u8` may not: bytes have their own encoding).
pub trait Item {}
impl Item for ParamInfo {}
impl Item for KernelInfo {}
impl Item for LinkInput {}
impl Item for JitOption {}
impl Item for i32 {}

wire_struct! {
    /// Where one parameter of a kernel lies.
    pub struct ParamInfo {
        /// Bytes from the start of the parameter block.
        pub offset: u32,
        /// Its size in bytes.
        pub size: u32,
    }
}

wire_struct! {
    /// A kernel of a loaded image.
    pub struct KernelInfo {
        /// Its (mangled) name.
        pub name: String,
        /// Its parameters in order.
        pub params: Vec<ParamInfo>,
        /// Its attributes 0, 1, 2, … (`CUfunction_attribute`) on the session's first device, as far as the driver answered.
        pub attributes: Vec<i32>,
    }
}

wire_struct! {
    /// What a load found in an image.
    pub struct Contents {
        /// All kernels, in the driver's order; the index names one in `module_function` and `library_kernel`.
        pub kernels: Vec<KernelInfo>,
        /// The JIT compiler's information log, empty if none was asked for.
        pub info_log: String,
        /// The JIT compiler's error log, empty if none was asked for.
        pub error_log: String,
    }
}

wire_struct! {
    /// One JIT option whose value is a number (`CUjit_option`); buffers never travel, only the sizes asked for.
    pub struct JitOption {
        /// The `CUjit_option`.
        pub option: u32,
        /// Its value.
        pub value: u64,
    }
}

wire_struct! {
    /// One input of a link.
    pub struct LinkInput {
        /// The `CUjitInputType`.
        pub kind: u32,
        /// The name that messages use for it.
        pub name: String,
        /// The input itself.
        pub data: Vec<u8>,
        /// Options for this input.
        pub options: Vec<JitOption>,
    }
}

wire_struct! {
    /// All inputs of a link.
    pub struct LinkInputs {
        /// The options given to cuLinkCreate.
        pub options: Vec<JitOption>,
        /// The inputs in order.
        pub inputs: Vec<LinkInput>,
    }
}

wire_struct! {
    /// What a link made.
    pub struct LinkProduct {
        /// The image, empty if the link failed.
        pub image: Vec<u8>,
        /// The linker's information log.
        pub info_log: String,
        /// The linker's error log.
        pub error_log: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Contents {
        let param = ParamInfo { offset: 8, size: 4 };
        let kernel =
            KernelInfo { name: "_Z3addPf".into(), params: vec![param], attributes: vec![1024, 0, -1] };
        Contents { kernels: vec![kernel], info_log: "i".into(), error_log: String::new() }
    }

    #[test]
    fn contents_come_back() {
        assert_eq!(Contents::from_bytes(&example().to_bytes()).unwrap(), example());
    }

    #[test]
    fn every_truncation_and_a_lying_count_are_refused() {
        let bytes = example().to_bytes();
        for end in 0..bytes.len() {
            assert!(Contents::from_bytes(&bytes[..end]).is_err(), "{end}");
        }
        let mut lying = bytes;
        lying[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Contents::from_bytes(&lying), Err(BadRecord::OutOfRange));
    }
}

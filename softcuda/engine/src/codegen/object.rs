//! Machine code that knows no address of this process, and how it becomes code that can run.

use super::{Code, Exec, Variant};
use bincode::{Decode, Encode};
use std::io;

/// What a generator makes: bytes that can be kept in a file and used by another process.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Object {
    pub variant: Variant,
    /// The machine code, all functions one after the other.
    pub bytes: Vec<u8>,
    /// Offsets of the functions in `bytes`, in the order of [`crate::ir::passes::Reach::functions`].
    pub entries: Vec<u32>,
    /// See [`Code::by_number`].
    pub by_number: Vec<u32>,
    /// See [`Code::frame`].
    pub frame: u32,
    /// See [`Code::group_frame`].
    pub group_frame: u32,
    /// Where addresses of variables belong.
    pub fixups: Vec<Fixup>,
    /// See [`Code::segments`].
    pub segments: Option<Segments>,
    /// See [`Code::covers`].
    pub covers: Vec<Vec<Covered>>,
}

/// How groups run from barrier to barrier: see [`crate::runtime::segments`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Segments {
    /// Bytes of a group's room.
    pub room: u32,
    /// The number of the barrier.
    pub barrier: u32,
}

/// An access that vector code has tested together with others: see [`crate::runtime::checks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Covered {
    /// Which of the values that the test was made with is its address.
    pub cover: u32,
    /// From the address of lane 0, in bytes.
    pub offset: i64,
    /// Bytes of one lane.
    pub size: u32,
    /// Lanes that lie side by side; 1 if all have one address.
    pub lanes: u32,
    /// Line of the PTX.
    pub line: u32,
    pub write: bool,
    /// The address is an offset in shared memory.
    pub shared: bool,
    /// The address has 32 bits.
    pub narrow: bool,
}

/// A place in the code for the address of a `.global` or `.const` variable: 8 bytes, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Fixup {
    /// Offset in [`Object::bytes`].
    pub at: u32,
    /// Index into [`crate::ir::Program::vars`].
    pub var: u32,
    /// Added to the address.
    pub addend: i64,
}

impl Object {
    /// Maps the code, with the addresses of the variables in it.
    pub fn link(&self, addresses: &[u64]) -> io::Result<Code> {
        let mut bytes = self.bytes.clone();
        for f in &self.fixups {
            let at = f.at as usize;
            let (Some(place), Some(address)) = (bytes.get_mut(at..at + 8), addresses.get(f.var as usize))
            else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a fixup outside of the code"));
            };
            place.copy_from_slice(&address.wrapping_add_signed(f.addend).to_le_bytes());
        }
        let exec = Exec::new(&bytes)?;
        let entries = self.entries.iter().map(|o| exec.address() + *o as usize).collect();
        Ok(Code {
            variant: self.variant,
            _exec: exec,
            entries,
            by_number: self.by_number.clone(),
            frame: self.frame,
            group_frame: self.group_frame,
            segments: self.segments,
            covers: self.covers.clone(),
        })
    }
}

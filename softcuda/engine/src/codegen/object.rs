//! Machine code that knows no address of this process, and how it becomes code that can run.

use super::{Code, Exec, Variant};
use bincode::{Decode, Encode};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

/// A register without a place.
pub const NOWHERE: u32 = u32::MAX;

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
    /// By register of the kernel that the vector code makes: its place in a group's frame, or [`NOWHERE`].
    pub places: Vec<u32>,
    /// See [`Code::segments`].
    pub segments: Option<Segments>,
    /// See [`Code::covers`].
    pub covers: Vec<Vec<Covered>>,
}

/// How groups run from stop to stop: see [`crate::runtime::segments`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Segments {
    /// Bytes of a group's room.
    pub room: u32,
    /// The number of the barrier at which they stop, where threads can wait.
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
    pub fn map(&self, addresses: &[u64]) -> io::Result<Exec> {
        let mut bytes = self.bytes.clone();
        for f in &self.fixups {
            let at = f.at as usize;
            let (Some(place), Some(address)) = (bytes.get_mut(at..at + 8), addresses.get(f.var as usize))
            else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a fixup outside of the code"));
            };
            place.copy_from_slice(&address.wrapping_add_signed(f.addend).to_le_bytes());
        }
        Exec::new(&bytes)
    }

    /// The code as it is run.
    pub fn link(&self, addresses: &[u64]) -> io::Result<Code> {
        let exec = self.map(addresses)?;
        let mut entries: Vec<usize> = self.entries.iter().map(|o| exec.address() + *o as usize).collect();
        if self.variant.mode.groups() {
            entries.push(crate::runtime::lanes::first as *const () as usize);
        }
        Ok(Code {
            lanes: OnceLock::new(),
            places: self.places.clone(),
            variant: self.variant,
            _exec: exec,
            entries: entries.into_iter().map(AtomicUsize::new).collect(),
            by_number: self.by_number.clone(),
            frame: self.frame,
            group_frame: self.group_frame,
            segments: self.segments,
            covers: self.covers.clone(),
        })
    }
}

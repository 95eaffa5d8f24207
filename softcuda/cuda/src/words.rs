//! Stream memory operations: words that a stream writes, and words that it waits for.
#![forbid(unsafe_code)]

use crate::allocations::Allocation;
use crate::context::{self, Context};
use crate::error::*;
use crate::op::Op;
use crate::place::{self, Place};
use crate::stream::Work;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// `CU_STREAM_WAIT_VALUE_FLUSH`, which asks for what this device does not have (attribute 98 is 0).
const FLUSH: u32 = 1 << 30;
/// Operations that one batch may have, as the manual says of `cuStreamBatchMemOp`.
const MOST: usize = 256;

/// `CUstreamBatchMemOpParams`: 48 bytes.
pub type Raw = [u64; 6];

/// One operation: the fields of [`Raw`] that any of them uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// `CUstreamBatchMemOpType`.
    pub kind: u32,
    /// Where the word is.
    pub address: u64,
    /// What is written or waited for.
    pub value: u64,
    /// Flags of the operation.
    pub flags: u32,
}

impl Word {
    fn of(raw: &Raw) -> Word {
        let kind = raw[0] as u32;
        match kind {
            // Only flags, which follow the kind.
            3 | BARRIER => Word { kind, address: 0, value: 0, flags: (raw[0] >> 32) as u32 },
            WAIT_32 | WRITE_32 => {
                Word { kind, address: raw[1], value: u64::from(raw[2] as u32), flags: raw[3] as u32 }
            }
            _ => Word { kind, address: raw[1], value: raw[2], flags: raw[3] as u32 },
        }
    }

    /// As a batch has it.
    pub fn raw(self) -> Raw {
        [u64::from(self.kind), self.address, self.value, u64::from(self.flags), 0, 0]
    }
}

/// `CU_STREAM_MEM_OP_WAIT_VALUE_32`.
pub const WAIT_32: u32 = 1;
/// `CU_STREAM_MEM_OP_WRITE_VALUE_32`.
pub const WRITE_32: u32 = 2;
/// `CU_STREAM_MEM_OP_WAIT_VALUE_64`.
pub const WAIT_64: u32 = 4;
/// `CU_STREAM_MEM_OP_WRITE_VALUE_64`.
pub const WRITE_64: u32 = 5;
/// `CU_STREAM_MEM_OP_BARRIER`.
pub const BARRIER: u32 = 6;

/// How a waiting stream compares (`CUstreamWaitValue_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    /// At least, on a circle.
    AtLeast,
    Equal,
    /// Any common bit.
    And,
    /// Any bit that neither has.
    Nor,
}

impl Compare {
    fn holds(self, found: u64, wanted: u64, wide: bool) -> bool {
        let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
        let wanted = wanted & mask;
        match self {
            Compare::AtLeast if wide => found.wrapping_sub(wanted) as i64 >= 0,
            Compare::AtLeast => (found as u32).wrapping_sub(wanted as u32) as i32 >= 0,
            Compare::Equal => found == wanted,
            Compare::And => found & wanted != 0,
            Compare::Nor => !(found | wanted) & mask != 0,
        }
    }
}

/// One operation, checked.
#[derive(Clone)]
enum Step {
    Wait { address: u64, memory: Allocation, wide: bool, value: u64, compare: Compare },
    Write { address: u64, memory: Allocation, wide: bool, value: u64 },
    Barrier,
}

/// Operations that are done one after the other.
pub struct Batch {
    /// The context that they belong to.
    pub context: Arc<Context>,
    /// As the program gave them.
    pub words: Vec<Raw>,
    steps: Vec<Step>,
}

impl Batch {
    /// Checks operations.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for none, too many, an unknown operation or flag, a word that is not aligned or not in
    /// memory that the device reaches; `CUDA_ERROR_NOT_SUPPORTED` for flushes of remote writes and atomic reductions.
    pub fn prepare(context: &Arc<Context>, words: Vec<Raw>) -> Result<Arc<Batch>> {
        if words.is_empty() || words.len() > MOST {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let steps = words.iter().map(|raw| step(&Word::of(raw))).collect::<Result<_>>()?;
        Ok(Arc::new(Batch { context: context.clone(), words, steps }))
    }

    /// Whether no operation waits.
    pub fn never_waits(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, Step::Wait { .. }))
    }

    /// Does the operations.
    ///
    /// # Errors
    /// `CUDA_ERROR_ILLEGAL_ADDRESS` for memory that was freed meanwhile; the context's fatal error, which ends a wait.
    pub fn run(&self) -> Result {
        self.steps.iter().try_for_each(|step| self.one(step))
    }

    fn one(&self, step: &Step) -> Result {
        match step {
            Step::Barrier => fence(Ordering::SeqCst),
            Step::Write { memory, .. } | Step::Wait { memory, .. } if !place::is_backed(memory) => {
                return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
            }
            Step::Write { address, memory, wide, value } => {
                if !memory.device.memory.store_word(*address, *wide, *value) {
                    return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
                }
            }
            Step::Wait { address, memory, wide, value, compare } => {
                let mut looks = 0;
                loop {
                    let found = memory.device.memory.load_word(*address, *wide);
                    let found = found.ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
                    if compare.holds(found, *value, *wide) {
                        break;
                    }
                    self.context.fate.check()?;
                    if !place::is_backed(memory) {
                        return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
                    }
                    pause(&mut looks);
                }
            }
        }
        Ok(())
    }
}

/// Between two looks at a word: nobody says when it changes.
fn pause(looks: &mut u32) {
    *looks = looks.saturating_add(1);
    match *looks {
        0..200 => std::hint::spin_loop(),
        200..400 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

fn step(word: &Word) -> Result<Step> {
    let wide = matches!(word.kind, WAIT_64 | WRITE_64);
    let bytes = if wide { 8 } else { 4 };
    let place = |write| {
        if !word.address.is_multiple_of(bytes) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match Place::known(word.address, bytes, write)? {
            Place::Known(address, memory) => Ok((address, memory)),
            Place::Pageable(_) => Err(CUDA_ERROR_INVALID_VALUE),
        }
    };
    let value = word.value;
    match word.kind {
        WAIT_32 | WAIT_64 => {
            if word.flags & FLUSH != 0 {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            let compare = match word.flags {
                0 => Compare::AtLeast,
                1 => Compare::Equal,
                2 => Compare::And,
                3 => Compare::Nor,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            let (address, memory) = place(false)?;
            Ok(Step::Wait { address, memory, wide, value, compare })
        }
        WRITE_32 | WRITE_64 => {
            // The only flag takes a barrier away, which is none too many.
            if word.flags > 1 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let (address, memory) = place(true)?;
            Ok(Step::Write { address, memory, wide, value })
        }
        BARRIER if word.flags <= 1 => Ok(Step::Barrier),
        // Flushes of remote writes; atomic reductions.
        3 | 8 => Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuStreamWaitValue`, `cuStreamWriteValue` and `cuStreamBatchMemOp`.
///
/// # Errors
/// As [`Batch::prepare`]; `CUDA_ERROR_INVALID_VALUE` for flags of a batch, of which there are none.
pub fn submit(words: Vec<Raw>, flags: u32, stream: usize) -> Result {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    context.submit(&stream, Work::Do(Op::Words(Batch::prepare(&context, words)?)))
}

#[cfg(test)]
mod tests {
    use super::Compare;

    #[test]
    fn comparisons_are_the_manuals() {
        use Compare::*;
        // (int32_t)(*addr - value) >= 0
        assert!(AtLeast.holds(5, 5, false) && AtLeast.holds(6, 5, false) && !AtLeast.holds(4, 5, false));
        assert!(AtLeast.holds(1, 0xffff_fff0, false), "on a circle");
        assert!(!AtLeast.holds(1, 0xffff_fff0, true));
        assert!(AtLeast.holds(2, u64::MAX, true));
        assert!(Equal.holds(7, 7, true) && !Equal.holds(8, 7, true));
        assert!(Equal.holds(7, 7 | 1 << 40, false), "the upper half of a narrow value is none of it");
        assert!(And.holds(6, 2, false) && !And.holds(4, 2, false));
        // ~(*addr | value) != 0
        assert!(Nor.holds(1, 2, false) && !Nor.holds(0xffff_0000, 0xffff, false));
        assert!(Nor.holds(0xffff_0000, 0xffff, true));
    }
}

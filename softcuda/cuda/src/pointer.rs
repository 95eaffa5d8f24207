//! `cuPointerGetAttribute(s)`: what is known of an address.

use crate::allocations::{Allocation, What};
use crate::driver::TABLES;
use crate::error::*;
use crate::{current, virtual_memory};
use std::sync::atomic::Ordering;

/// An answer, with the type that CUDA gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A pointer or another 8-byte word.
    Word(u64),
    /// An int.
    Int(i32),
    /// A truth value, which NVIDIA's driver writes as an unsigned int.
    Bool(bool),
    /// Two words that mean nothing here.
    Pair,
}

const MEMORY_HOST: i32 = 1;
const MEMORY_DEVICE: i32 = 2;

/// The answer for an address that lies in an allocation; `None` where CUDA has an error for this memory.
fn known(a: &Allocation, id: u32, address: u64) -> Option<Answer> {
    Some(match id {
        1 => Answer::Word(a.context as u64),
        2 => Answer::Int(if a.what.is_host() { MEMORY_HOST } else { MEMORY_DEVICE }),
        3 => Answer::Word(address),
        4 if a.what.is_host() || a.what.is_managed() => Answer::Word(address),
        4 => return None,
        5 => Answer::Pair,
        6 => Answer::Bool(a.synchronous.load(Ordering::Relaxed)),
        7 => Answer::Word(a.id),
        8 => Answer::Bool(a.what.is_managed()),
        9 => Answer::Int(a.device.ordinal),
        10 => Answer::Bool(a.what == What::Device),
        15 | 21 => Answer::Bool(false),
        11 => Answer::Word(range(a).0),
        12 => Answer::Word(range(a).1),
        18 => Answer::Word(a.size),
        19 => Answer::Word(a.base),
        13 => Answer::Bool(true),
        14 => Answer::Word(0),
        16 => Answer::Int(3),
        17 => Answer::Word(if let What::Pooled(pool) = a.what { pool as u64 } else { 0 }),
        20 => Answer::Word(a.id),
        22 => Answer::Int(0),
        _ => return None,
    })
}

/// The range of addresses that an allocation is in: its own, or the one that it is mapped into.
fn range(a: &Allocation) -> (u64, u64) {
    let mapped = if a.what == What::Mapped { virtual_memory::range(a.base) } else { None };
    mapped.unwrap_or((a.base, a.size))
}

/// The answer for an address that the driver knows nothing of.
fn unknown(id: u32) -> Option<Answer> {
    Some(match id {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17 | 18 | 19 | 20 => Answer::Word(0),
        2 | 16 | 22 => Answer::Int(0),
        5 => Answer::Pair,
        6 | 8 | 10 | 13 | 15 | 21 => Answer::Bool(false),
        9 => Answer::Int(-2),
        _ => return None,
    })
}

/// `cuPointerSetAttribute` of the only attribute that can be set.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for an address that is no device memory.
pub fn set_synchronous(address: u64, yes: bool) -> Result {
    current::healthy()?;
    let allocation = TABLES.allocations.find(address).filter(|a| a.what.is_device());
    allocation.ok_or(CUDA_ERROR_INVALID_VALUE)?.synchronous.store(yes, Ordering::Relaxed);
    Ok(())
}

/// One attribute (`cuPointerGetAttribute`).
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute, an address that is not the driver's, and for the host
/// address of plain device memory.
pub fn attribute(id: u32, address: u64) -> Result<Answer> {
    let allocation = TABLES.allocations.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    known(&allocation, id, address).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// One of several attributes (`cuPointerGetAttributes`), which has an answer for every address.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute.
pub fn lenient(id: u32, address: u64) -> Result<Answer> {
    let answer = TABLES.allocations.find(address).and_then(|a| known(&a, id, address));
    answer.or_else(|| unknown(id)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

impl Answer {
    /// Writes the answer where the program wants it.
    ///
    /// # Safety
    /// `to` has room for the attribute's type.
    pub unsafe fn write(self, to: *mut std::ffi::c_void) {
        // SAFETY: the caller vouches for the room; CUDA does not ask for alignment.
        unsafe {
            match self {
                Answer::Word(value) => to.cast::<u64>().write_unaligned(value),
                Answer::Int(value) => to.cast::<i32>().write_unaligned(value),
                Answer::Bool(value) => to.cast::<u32>().write_unaligned(u32::from(value)),
                Answer::Pair => to.cast::<[u64; 2]>().write_unaligned([0, 0]),
            }
        }
    }
}

//! Reserved addresses, and memory that is mapped there.

use super::{GRANULARITY, alive, fresh, note, with};
use crate::worker::code::Code;
use crate::worker::functions::{AccessDescription, Properties};

pub unsafe extern "C" fn reserve(address: &mut u64, bytes: usize, _: usize, hint: u64, _: u64) -> Code {
    // Half of the address space is not free.
    *address = if hint < 1 << 46 { hint } else { 1 << 40 };
    note(format!("reserve {bytes}"))
}

pub unsafe extern "C" fn unreserve(_: u64, bytes: usize) -> Code {
    note(format!("unreserve {bytes}"))
}

pub unsafe extern "C" fn granularity(granularity: &mut usize, _: &Properties, _: u32) -> Code {
    *granularity = GRANULARITY as usize;
    Code::SUCCESS
}

pub unsafe extern "C" fn create(memory: &mut u64, bytes: usize, _: &Properties, _: u64) -> Code {
    match with(|state| state.left.checked_sub(bytes)) {
        None => Code::OUT_OF_MEMORY,
        Some(left) => {
            with(|state| state.left = left);
            *memory = fresh();
            Code::SUCCESS
        }
    }
}

pub unsafe extern "C" fn map(address: u64, bytes: usize, _: usize, memory: u64, _: u64) -> Code {
    alive(memory);
    let before = with(|state| state.mapped.insert(address, bytes));
    assert_eq!(before, None, "mapped twice");
    Code::SUCCESS
}

pub unsafe extern "C" fn unmap(address: u64, bytes: usize) -> Code {
    with(|state| {
        assert_eq!(state.mapped.remove(&address), Some(bytes), "not what was mapped");
        state.left += bytes;
    });
    Code::SUCCESS
}

pub unsafe extern "C" fn set_access(
    address: u64,
    bytes: usize,
    access: &AccessDescription,
    count: usize,
) -> Code {
    assert_eq!((access.flags, count, with(|state| state.mapped.get(&address).copied())), (3, 1, Some(bytes)));
    Code::SUCCESS
}

//! The helper of texture and surface instructions.

use super::block::{fail, grid_of};
use super::context::Thread;
use crate::error::FaultKind;
use crate::ir::texture::{Reduction, TextureKind, TextureOp};
use crate::memory::Memory;
use crate::texture::{Object, Refusal, sample, surface};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Operands that an instruction has at most: a layer, three coordinates, and two gradients or four values, and an offset.
const OPERANDS: usize = 13;

/// Does an operation.
///
/// # Safety
/// `t` is the running thread; `inputs` holds the operands that the operation of `code` has, `results` has room for four.
pub unsafe extern "C" fn operation(
    t: *mut Thread,
    object: u64,
    inputs: *const u64,
    results: *mut u64,
    code: u32,
    line: u32,
) {
    let op = TextureOp::of(code);
    let mut a = [0; OPERANDS];
    let count = operands(op).min(OPERANDS);
    // SAFETY: as promised.
    unsafe { std::ptr::copy_nonoverlapping(inputs, a.as_mut_ptr(), count) };
    // SAFETY: generated code passes the running thread. The grid is done with before a fault leaves this frame.
    let done = unsafe { run(&grid_of(t).memory, object, op, &a[..count]) };
    let what = match done {
        Ok(words) => {
            // SAFETY: as promised.
            unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), results, words.len()) };
            return;
        }
        Err(refusal) => refusal,
    };
    let (kind, text) = match what {
        Refusal::Handle => {
            (FaultKind::IllegalAddress, format!("{object:#x} is no texture or surface for this"))
        }
        Refusal::Memory(address) => {
            (FaultKind::IllegalAddress, format!("the memory of an image is gone at {address:#x}"))
        }
        Refusal::Bounds => (FaultKind::Trap, "access outside of a surface".to_string()),
    };
    // SAFETY: as above.
    unsafe { fail(t, kind, line, text) }
}

/// How many operands an operation has.
fn operands(op: TextureOp) -> usize {
    let coordinates = op.shape.coordinates();
    let offset = if op.offset { op.shape.axes() } else { 0 };
    offset
        + match op.kind {
            TextureKind::FetchLevel => coordinates + 1,
            TextureKind::FetchGradient => coordinates + 2 * op.shape.axes(),
            TextureKind::Store | TextureKind::StoreFormatted => coordinates + usize::from(op.lanes),
            TextureKind::Reduce | TextureKind::ReduceFormatted => coordinates + 1,
            TextureKind::QueryTexture | TextureKind::QuerySurface => 1,
            TextureKind::IsTexture | TextureKind::IsSurface => 0,
            _ => coordinates,
        }
}

fn run(memory: &Memory, object: u64, op: TextureOp, a: &[u64]) -> Result<[u64; 4], Refusal> {
    match op.kind {
        TextureKind::Load => surface::load(memory, object, op, a),
        TextureKind::Store | TextureKind::StoreFormatted => {
            surface::store(memory, object, op, a).map(|()| [0; 4])
        }
        TextureKind::Reduce | TextureKind::ReduceFormatted => {
            if let Some(address) = surface::target(memory, object, op, a)? {
                reduce(address, op, a.last().copied().unwrap_or(0));
            }
            Ok([0; 4])
        }
        TextureKind::IsTexture => Ok(truth(matches!(memory.object(object), Some(Object::Texture(_))))),
        TextureKind::IsSurface => Ok(truth(matches!(memory.object(object), Some(Object::Surface(_))))),
        TextureKind::QueryTexture => sample::query(memory, object, op.query(), a[0]).map(|n| [n, 0, 0, 0]),
        TextureKind::QuerySurface => surface::query(memory, object, op.query()).map(|n| [n, 0, 0, 0]),
        _ => sample::fetch(memory, object, op, a),
    }
}

fn truth(yes: bool) -> [u64; 4] {
    [u64::from(yes), 0, 0, 0]
}

/// Atomically combines a value with what is at an address that was checked and is aligned.
fn reduce(address: u64, op: TextureOp, value: u64) {
    let all = Ordering::SeqCst;
    let combine = |old: u64, signed: fn(u64) -> i64| match op.reduction() {
        Reduction::Add => old.wrapping_add(value),
        Reduction::MinS => {
            if signed(old) <= signed(value) {
                old
            } else {
                value
            }
        }
        Reduction::MaxS => {
            if signed(old) >= signed(value) {
                old
            } else {
                value
            }
        }
        Reduction::MinU => old.min(value),
        Reduction::MaxU => old.max(value),
        Reduction::And => old & value,
        Reduction::Or => old | value,
    };
    if op.size == 3 {
        // SAFETY: the caller checked the address; kernels reach it by atomics of this size as well.
        let word = unsafe { AtomicU64::from_ptr(address as *mut u64) };
        let _ = word.fetch_update(all, all, |old| Some(combine(old, |v| v as i64)));
    } else {
        // SAFETY: as above.
        let word = unsafe { AtomicU32::from_ptr(address as *mut u32) };
        let narrow = |v: u64| i64::from(v as u32 as i32);
        let _ = word.fetch_update(all, all, |old| Some(combine(old.into(), narrow) as u32));
    }
}

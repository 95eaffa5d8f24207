//! The helper of texture and surface instructions.

use super::block::{fail, grid_of};
use super::context::Thread;
use crate::engine::Grid;
use crate::error::FaultKind;
use crate::ir::texture::{OpaqueKind, Reduction, TextureKind, TextureOp};
use crate::texture::{Image, Object, Refusal, Texture, sample, surface};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Operands that an instruction has at most: a sampler, a layer, three coordinates, and two gradients or four values, and an offset.
const OPERANDS: usize = 14;

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
    let done = unsafe { run(grid_of(t), object, op, &a[..count]) };
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
        Refusal::Unbound => {
            (FaultKind::IllegalAddress, "nothing is bound to a texture or surface reference".to_string())
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
        + usize::from(op.sampler)
        + match op.kind {
            TextureKind::FetchLevel => coordinates + 1,
            TextureKind::FetchGradient => coordinates + 2 * op.shape.axes(),
            TextureKind::Store | TextureKind::StoreFormatted => coordinates + usize::from(op.lanes),
            TextureKind::Reduce | TextureKind::ReduceFormatted => coordinates + 1,
            TextureKind::QueryTexture | TextureKind::QuerySurface => 1,
            TextureKind::IsTexture | TextureKind::IsSurface | TextureKind::IsSampler => 0,
            _ => coordinates,
        }
}

fn run(grid: &Grid, number: u64, op: TextureOp, a: &[u64]) -> Result<[u64; 4], Refusal> {
    let memory = &grid.memory;
    let object = grid.bindings.object(memory, number);
    match op.kind {
        TextureKind::IsTexture => Ok(truth(is(&object, OpaqueKind::Texture))),
        TextureKind::IsSurface => Ok(truth(is(&object, OpaqueKind::Surface))),
        TextureKind::IsSampler => Ok(truth(is(&object, OpaqueKind::Sampler))),
        TextureKind::Load => surface::load(memory, &*image(object)?, op, a),
        TextureKind::Store | TextureKind::StoreFormatted => {
            surface::store(memory, &*image(object)?, op, a).map(|()| [0; 4])
        }
        TextureKind::Reduce | TextureKind::ReduceFormatted => {
            if let Some(address) = surface::target(memory, &*image(object)?, op, a)? {
                reduce(address, op, a.last().copied().unwrap_or(0));
            }
            Ok([0; 4])
        }
        TextureKind::QueryTexture => {
            let answer = match object {
                Some(Object::Sampler(sampler)) => sample::query_sampler(&sampler, op.query())?,
                object => sample::query(&*texture(object)?, op.query(), a[0])?,
            };
            Ok([answer, 0, 0, 0])
        }
        TextureKind::QuerySurface => Ok([surface::query(&*image(object)?, op.query()), 0, 0, 0]),
        TextureKind::Fetch
        | TextureKind::FetchInteger
        | TextureKind::FetchLevel
        | TextureKind::FetchGradient
        | TextureKind::Gather => {
            let texture = texture(object)?;
            if !op.sampler {
                return sample::fetch(memory, &texture.levels, &texture.sampler, op, a);
            }
            let Some(Object::Sampler(sampler)) = grid.bindings.object(memory, a[0]) else {
                return Err(Refusal::Handle);
            };
            let sampler = sample::apart(&texture.sampler, &sampler);
            sample::fetch(memory, &texture.levels, &sampler, op, &a[1..])
        }
    }
}

fn is(object: &Option<Object>, kind: OpaqueKind) -> bool {
    object.as_ref().is_some_and(|object| object.kind() == kind)
}

fn texture(object: Option<Object>) -> Result<Arc<Texture>, Refusal> {
    match object {
        Some(Object::Texture(texture)) => Ok(texture),
        Some(Object::Unbound(OpaqueKind::Texture)) => Err(Refusal::Unbound),
        _ => Err(Refusal::Handle),
    }
}

fn image(object: Option<Object>) -> Result<Arc<Image>, Refusal> {
    match object {
        Some(Object::Surface(image)) => Ok(image),
        Some(Object::Unbound(OpaqueKind::Surface)) => Err(Refusal::Unbound),
        _ => Err(Refusal::Handle),
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

//! Allocations and memory pools.

use std::sync::Arc;

use gpupool_protocol::api::kinds::{MemPool, Stream};
use gpupool_protocol::wire::codec::BadRecord;

use crate::worker::code::Fail;
use crate::worker::context::Cx;
use crate::worker::objects::{Found, Fresh};

/// `kind` of a plain allocation.
const LINEAR: u32 = 0;
/// `kind` of an allocation with a row pitch that the driver chooses.
const PITCHED: u32 = 1;

/// A size from the client as the driver takes it.
fn size(bytes: u64) -> Result<usize, Fail> {
    Ok(usize::try_from(bytes).or(Err(BadRecord::OutOfRange))?)
}

#[allow(clippy::too_many_arguments)]
pub fn mem_alloc(
    cx: &mut Cx,
    bytes: u64,
    kind: u32,
    width: u64,
    height: u64,
    element: u32,
    address: &mut u64,
    pitch: &mut u64,
) -> Result<(), Fail> {
    let hand = &cx.session.driver.hand;
    match kind {
        LINEAR => hand.cuMemAlloc_v2(address, size(bytes)?).ok(),
        PITCHED => {
            let mut chosen = 0;
            hand.cuMemAllocPitch_v2(address, &mut chosen, size(width)?, size(height)?, element).ok()?;
            *pitch = chosen as u64;
            Ok(())
        }
        _ => Err(BadRecord::OutOfRange.into()),
    }
}

pub fn mem_free(cx: &mut Cx, address: u64) -> Result<(), Fail> {
    cx.session.driver.hand.cuMemFree_v2(address).ok()
}

pub fn mem_alloc_async(
    cx: &mut Cx,
    bytes: u64,
    pool: Option<&Found<MemPool>>,
    stream: &Found<Stream>,
    address: &mut u64,
) -> Result<(), Fail> {
    let hand = &cx.session.driver.hand;
    let bytes = size(bytes)?;
    match pool {
        None => hand.cuMemAllocAsync(address, bytes, stream.native).ok(),
        Some(pool) => hand.cuMemAllocFromPoolAsync(address, bytes, pool.native, stream.native).ok(),
    }
}

pub fn mem_free_async(cx: &mut Cx, address: u64, stream: &Found<Stream>) -> Result<(), Fail> {
    cx.session.driver.hand.cuMemFreeAsync(address, stream.native).ok()
}

pub fn pool_name(cx: &mut Cx, pool: Fresh, device: i32, current: u32) -> Result<(), Fail> {
    let device = cx.device(device)?;
    let hand = &cx.session.driver.hand;
    let mut native = 0;
    match current {
        0 => hand.cuDeviceGetDefaultMemPool(&mut native, device).ok()?,
        1 => hand.cuDeviceGetMemPool(&mut native, device).ok()?,
        _ => return Err(BadRecord::OutOfRange.into()),
    }
    cx.bind::<MemPool>(pool, native, Arc::default(), ());
    Ok(())
}

/// The attributes (`CUmemPool_attribute`) that hold a number of 32 or 64 bits. The driver writes the first as 32 bits, so
/// the rest of the word stays zero.
fn known(attribute: u32) -> Result<(), Fail> {
    if (1..=15).contains(&attribute) { Ok(()) } else { Err(crate::worker::code::Code::INVALID_VALUE.into()) }
}

pub fn pool_get_attribute(
    cx: &mut Cx,
    pool: &Found<MemPool>,
    attribute: u32,
    value: &mut u64,
) -> Result<(), Fail> {
    known(attribute)?;
    cx.session.driver.hand.cuMemPoolGetAttribute(pool.native, attribute, value).ok()
}

pub fn pool_set_attribute(
    cx: &mut Cx,
    pool: &Found<MemPool>,
    attribute: u32,
    value: u64,
) -> Result<(), Fail> {
    known(attribute)?;
    let mut value = value;
    cx.session.driver.hand.cuMemPoolSetAttribute(pool.native, attribute, &mut value).ok()
}

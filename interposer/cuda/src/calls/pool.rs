//! Memory pools: the default one of each device.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use gpupool_protocol::api::kinds;

use crate::code::{Answer, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::send;
use crate::state::objects::lock;

type Handle = Raw<kinds::MemPool>;

/// The handle, if it means a pool. Else CUDA_ERROR_INVALID_VALUE: the manual gives pools no other code.
pub fn handle_of(cx: Cx, pool: Handle) -> Answer<u64> {
    cx.session.pools.get(pool.0).map(|_| pool.0).ok_or(INVALID_VALUE)
}

pub fn cuDeviceGetDefaultMemPool(cx: Cx, pool: Ptr<Handle>, ordinal: i32) -> Answer {
    pool.not_null()?;
    let device = cx.session.device(ordinal)?;
    let mut known = lock(&device.default_pool);
    if *known == 0 {
        let (handle, ()) = cx.session.pools.create(|handle, object| {
            object.device.store(ordinal, Relaxed);
            send::pool_name(cx, handle, device.pool, 0)
        })?;
        *known = handle;
    }
    pool.set(Raw::new(*known))
}

/// No other pool can be made current, so it is the default one.
pub fn cuDeviceGetMemPool(cx: Cx, pool: Ptr<Handle>, ordinal: i32) -> Answer {
    cuDeviceGetDefaultMemPool(cx, pool, ordinal)
}

/// CUmemPool_attribute: the first three are ints, the next five 64-bit numbers. The others describe pools that cannot be
/// made here.
fn is_int(attribute: u32) -> Answer<bool> {
    match attribute {
        1..=3 => Ok(true),
        4..=8 => Ok(false),
        _ => Err(INVALID_VALUE),
    }
}

pub fn cuMemPoolGetAttribute(cx: Cx, pool: Handle, attribute: u32, value: Ptr<c_void>) -> Answer {
    let pool = handle_of(cx, pool)?;
    value.not_null()?;
    let int = is_int(attribute)?;
    let mut got = 0;
    send::pool_get_attribute(cx, pool, attribute, &mut got)?;
    if int { value.cast::<i32>().set(got as i32) } else { value.cast::<u64>().set(got) }
}

pub fn cuMemPoolSetAttribute(cx: Cx, pool: Handle, attribute: u32, value: Ptr<c_void>) -> Answer {
    let pool = handle_of(cx, pool)?;
    let value = match is_int(attribute)? {
        true => value.cast::<i32>().get()? as u64,
        false => value.cast::<u64>().get()?,
    };
    send::pool_set_attribute(cx, pool, attribute, value)
}

//! Kernels and host functions.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;

use gpupool_protocol::api::kinds::{Event, Function, Stream};
use gpupool_protocol::wire::codec::BadRecord;

use crate::worker::code::{Code, Fail};
use crate::worker::context::Cx;
use crate::worker::functions::{LaunchAttribute, LaunchConfig};
use crate::worker::objects::Found;

/// Parameters whose addresses fit the stack.
const FEW: usize = 16;
/// Attributes that one launch may have: more than there are.
const ATTRIBUTES_MAX: usize = 32;
/// Bytes of a `CUlaunchAttribute`.
const ROW: usize = size_of::<LaunchAttribute>();
const _: () = assert!(ROW == 72);

// CUlaunchAttributeID, by cuda.h.
const COOPERATIVE: u32 = 2;
const PROGRAMMATIC_EVENT: u32 = 7;
const LAUNCH_COMPLETION_EVENT: u32 = 12;
const DEVICE_UPDATABLE_KERNEL_NODE: u32 = 13;
/// The newest identifier whose value is known to hold no handle.
const NEWEST: u32 = 18;

#[allow(clippy::too_many_arguments)]
#[inline(always)] // into its one caller: its arguments would cost more than itself
pub fn launch(
    cx: &mut Cx,
    function: &Found<Function>,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    dynamic_shared: u32,
    stream: &Found<Stream>,
    cooperative: u32,
    attributes: &[u8],
    parameters: &[u8],
) -> Result<(), Fail> {
    let kernel = &*function.parts.kernel;
    if parameters.len() < kernel.block {
        // The driver reads each parameter at its place in the layout.
        return Err(Code::INVALID_VALUE.into());
    }
    let config = LaunchConfig {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        dynamic_shared,
        stream: stream.native,
        attributes: std::ptr::null_mut(),
        count: 0,
    };
    let mut few = [const { MaybeUninit::<*mut c_void>::uninit() }; FEW];
    let Some(addresses) = few.get_mut(..kernel.params.len()) else {
        return launch_many(cx, function, config, cooperative, attributes, parameters);
    };
    for (address, (offset, _)) in addresses.iter_mut().zip(&kernel.params) {
        address.write(parameter(parameters, *offset)?);
    }
    let params = addresses.as_mut_ptr().cast();
    if attributes.is_empty() && cooperative == 0 {
        plain(cx, function.native, &config, params)
    } else {
        launch_with(cx, function.native, config, cooperative, attributes, params)
    }
}

/// Where a parameter of the layout stands in the block.
#[inline(always)]
fn parameter(block: &[u8], offset: u32) -> Result<*mut c_void, Fail> {
    // Never, since the layout ends where the block ends at the latest; an address outside would be the driver's to read.
    let rest = block.get(offset as usize..).ok_or(Code::INVALID_VALUE)?;
    Ok(rest.as_ptr().cast_mut().cast())
}

/// A launch with many parameters.
#[cold]
fn launch_many(
    cx: &mut Cx,
    function: &Found<Function>,
    config: LaunchConfig,
    cooperative: u32,
    attributes: &[u8],
    block: &[u8],
) -> Result<(), Fail> {
    let params = &function.parts.kernel.params;
    let mut addresses: Vec<_> =
        params.iter().map(|(offset, _)| parameter(block, *offset)).collect::<Result<_, _>>()?;
    let params = addresses.as_mut_ptr();
    if attributes.is_empty() && cooperative == 0 {
        plain(cx, function.native, &config, params)
    } else {
        launch_with(cx, function.native, config, cooperative, attributes, params)
    }
}

/// A launch without attributes. `params` are addresses as the kernel's layout has them, each with all its bytes behind it.
#[inline(always)]
fn plain(cx: &Cx, function: u64, config: &LaunchConfig, params: *mut *mut c_void) -> Result<(), Fail> {
    let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
    let none = std::ptr::null_mut();
    let hand = &cx.session.driver.hand;
    // SAFETY: the addresses are as many as the kernel has parameters, and lead to all their bytes.
    unsafe {
        hand.cuLaunchKernel(
            function,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            config.dynamic_shared,
            config.stream,
            params,
            none,
        )
    }
    .ok()
}

/// A launch with attributes, or a cooperative one.
#[cold]
fn launch_with(
    cx: &mut Cx,
    function: u64,
    mut config: LaunchConfig,
    cooperative: u32,
    attributes: &[u8],
    params: *mut *mut c_void,
) -> Result<(), Fail> {
    let mut rows = decode(cx, attributes)?;
    match cooperative {
        0 => {}
        1 => rows.push(LaunchAttribute { id: COOPERATIVE, pad: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] }),
        _ => return Err(BadRecord::OutOfRange.into()),
    }
    let hand = &cx.session.driver.hand;
    if hand.cuLaunchKernelEx.is_none() && cooperative == 1 && attributes.is_empty() {
        let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
        // SAFETY: as in `launch`.
        return unsafe {
            hand.cuLaunchCooperativeKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                config.dynamic_shared,
                config.stream,
                params,
            )
        }
        .ok();
    }
    config.attributes = rows.as_mut_ptr();
    config.count = rows.len() as u32;
    // SAFETY: as in `launch`; the rows live during the call.
    unsafe { hand.cuLaunchKernelEx(&config, function, params, std::ptr::null_mut()) }.ok()
}

/// The attributes, with the client's handles replaced by the driver's.
fn decode(cx: &mut Cx, bytes: &[u8]) -> Result<Vec<LaunchAttribute>, Fail> {
    let (rows, rest) = bytes.as_chunks::<ROW>();
    if !rest.is_empty() || rows.len() > ATTRIBUTES_MAX {
        return Err(BadRecord::OutOfRange.into());
    }
    rows.iter().map(|row| attribute(cx, row)).collect()
}

fn attribute(cx: &mut Cx, row: &[u8; ROW]) -> Result<LaunchAttribute, Fail> {
    let (words, _) = row.as_chunks::<8>();
    let mut value = [0; 8];
    for (to, from) in value.iter_mut().zip(&words[1..]) {
        *to = u64::from_le_bytes(*from);
    }
    let id = u64::from_le_bytes(words[0]) as u32;
    match id {
        // Both begin with the event.
        PROGRAMMATIC_EVENT | LAUNCH_COMPLETION_EVENT => value[0] = cx.find::<Event>(value[0])?.native,
        // Would answer with a graph node that device code may change.
        DEVICE_UPDATABLE_KERNEL_NODE => return Err(Code::NOT_SUPPORTED.into()),
        0..=NEWEST => {}
        _ => return Err(Code::NOT_SUPPORTED.into()),
    }
    Ok(LaunchAttribute { id, pad: 0, value })
}

pub fn host_function(cx: &mut Cx, stream: &Found<Stream>, callback: u64) -> Result<(), Fail> {
    let session = &cx.session;
    session.callbacks.launch(&session.driver, &session.link, stream.native, callback)
}

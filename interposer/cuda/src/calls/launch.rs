//! Launches: checks that the driver would make, and packing of the parameters.

use std::ffi::c_void;
use std::hint::cold_path;
use std::sync::atomic::Ordering::Relaxed;

use gpupool_protocol::api::kinds;

use crate::args::{Bytes, StreamArg, stream};
use crate::code::{
    Answer, COOPERATIVE_LAUNCH_TOO_LARGE, Code, INVALID_CONFIGURATION, INVALID_CONTEXT, INVALID_HANDLE,
    INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED, ensure, there,
};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::session::{Limits, Session};
use crate::state::image::Kernel;
use crate::state::objects::Event;
use crate::state::objects::{self, Resident, lock};
use crate::state::watch::Progress;
use crate::{host, parameters};

type Function = Raw<kinds::Function>;
type Stream = Raw<kinds::Stream>;

/// CUlaunchConfig, with plain numbers in the places of C's handles.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    stream: u64,
    attributes: u64,
    count: u32,
}

/// CUlaunchAttribute: an id, padding, and a value of 64 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LaunchAttribute {
    id: u32,
    pad: u32,
    value: [u64; 8],
}

const ATTRIBUTE_BYTES: usize = size_of::<LaunchAttribute>();
/// More attributes than exist make no sense.
const ATTRIBUTES_MAX: u32 = 64;
/// CU_FUNC_ATTRIBUTE_NUM_REGS.
const NUM_REGS: u32 = 4;

/// What a launch is asked to do, besides its parameters. Functions off the straight line get copies by reference, so that
/// it stays in registers.
#[derive(Clone, Copy)]
struct Launch<'a> {
    function: Function,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    stream: Stream,
    cooperative: bool,
    attributes: &'a [u8],
}

#[inline(always)]
pub fn cuLaunchKernel(
    cx: Cx,
    function: Function,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    dynamic_shared: u32,
    stream: Stream,
    parameters: Ptr<*mut c_void>,
    extra: Ptr<*mut c_void>,
) -> Answer {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let launch =
        Launch { function, grid, block, dynamic_shared, stream, cooperative: false, attributes: &[] };
    post(cx, &launch, parameters, extra)
}

pub fn cuLaunchCooperativeKernel(
    cx: Cx,
    function: Function,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    dynamic_shared: u32,
    stream: Stream,
    parameters: Ptr<*mut c_void>,
) -> Answer {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let launch = Launch { function, grid, block, dynamic_shared, stream, cooperative: true, attributes: &[] };
    post(cx, &launch, parameters, Ptr::of_argument(std::ptr::null_mut()))
}

pub fn cuLaunchKernelEx(
    cx: Cx,
    config: Ptr<LaunchConfig>,
    function: Function,
    parameters: Ptr<*mut c_void>,
    extra: Ptr<*mut c_void>,
) -> Answer {
    let config = config.get()?;
    let Attributes { rows, cooperative, events } = attributes(cx, &config)?;
    let launch = Launch {
        function,
        grid: config.grid,
        block: config.block,
        dynamic_shared: config.dynamic_shared,
        stream: Raw::new(config.stream),
        cooperative,
        attributes: &rows,
    };
    post(cx, &launch, parameters, extra)?;
    // As in cuEventRecord: counted when the launch is sent.
    events.iter().for_each(|event| event.progress.post());
    Ok(())
}

/// What a launch's attributes say.
#[derive(Default)]
struct Attributes {
    /// Those that go with the record.
    rows: Vec<u8>,
    /// Whether the launch is cooperative.
    cooperative: bool,
    /// Events that the launch records.
    events: Vec<&'static Event>,
}

/// The attributes of a launch. None is dropped: one that is not known to be harmless is refused.
fn attributes(cx: Cx, config: &LaunchConfig) -> Answer<Attributes> {
    let mut found = Attributes::default();
    if config.count > ATTRIBUTES_MAX || (config.count > 0 && config.attributes == 0) {
        return Err(INVALID_VALUE);
    }
    let given = host::bytes(config.attributes, config.count as usize * ATTRIBUTE_BYTES);
    for row in given.chunks_exact(ATTRIBUTE_BYTES) {
        let number = |at: usize| u32::from_ne_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        match number(0) {
            // CU_LAUNCH_ATTRIBUTE_IGNORE.
            0 => continue,
            // CU_LAUNCH_ATTRIBUTE_COOPERATIVE, an int.
            2 => {
                found.cooperative |= number(8) != 0;
                continue;
            }
            // Events that the launch records: their handles stand at the value's start.
            7 | 12 => {
                let event = u64::from(number(8)) | u64::from(number(12)) << 32;
                found.events.push(cx.session.events.get(event).ok_or(INVALID_HANDLE)?);
            }
            // Access policy, synchronization policy, clusters, programmatic serialization, priority, memory domains,
            // carve-out, hints.
            1 | 3..=6 | 8..=11 | 14 | 16..=18 => {}
            // Updatable graph nodes, and what is newer than this library.
            _ => return Err(NOT_SUPPORTED),
        }
        found.rows.extend_from_slice(row);
    }
    Ok(found)
}

#[inline(always)]
fn post(cx: Cx, launch: &Launch<'_>, pointers: Ptr<*mut c_void>, extra: Ptr<*mut c_void>) -> Answer {
    let context = cx.current()?;
    let function = there(cx.session.functions.get(launch.function.0), INVALID_HANDLE)?;
    let kernel = there(function.kernel.get(), INVALID_HANDLE)?;
    let stream = stream(cx, launch.stream)?;
    let limits = there(context.limits.get(), INVALID_CONTEXT)?;
    if !possible(limits, launch) {
        cold_path();
        return Err(if function.from_runtime.load(Relaxed) { INVALID_CONFIGURATION } else { INVALID_VALUE });
    }
    check(limits, kernel, launch)?;
    let most_shared = i64::from(function.max_dynamic_shared.load(Relaxed));
    ensure(i64::from(launch.dynamic_shared) <= most_shared, INVALID_VALUE)?;
    if launch.cooperative {
        cold_path();
        let copy = *launch;
        runs_at_once(cx, function, limits, &copy)?;
    }
    if !extra.is_null() {
        cold_path();
        let copy = *launch;
        let block = parameters::from_buffer(kernel, pointers, extra)?;
        let StreamArg { wire, object, shared } = stream;
        return send_block(cx.session, cx.context, cx.lane, &copy, wire, object, shared, block);
    }
    send(cx, launch, stream, parameters::gathered(kernel, pointers)?)
}

/// The record of a launch whose parameters are a block of the program's. Takes the parts of a [`Cx`] and of a [`StreamArg`]:
/// given by reference, they would have to be put into memory by every launch.
#[cold]
#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn send_block(
    session: &'static Session,
    context: u64,
    lane: u32,
    launch: &Launch<'_>,
    wire: u64,
    object: Option<&'static objects::Stream>,
    shared: Option<&'static Progress>,
    block: &[u8],
) -> Answer {
    let context_object = session.contexts.get(context);
    let cx = Cx { session, context, context_object, lane, null_stream: 0 };
    send(cx, launch, StreamArg { wire, object, shared }, Bytes::Whole(block))
}

#[inline(always)]
fn send(cx: Cx, launch: &Launch<'_>, stream: StreamArg, block: Bytes<'_>) -> Answer {
    let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
    let cooperative = u32::from(launch.cooperative);
    let (shared, rows) = (launch.dynamic_shared, Bytes::Whole(launch.attributes));
    crate::send::launch(
        cx,
        launch.function.0,
        gx,
        gy,
        gz,
        bx,
        by,
        bz,
        shared,
        stream,
        cooperative,
        rows,
        block,
    )
}

/// Whether the device can have such a grid and such blocks at all.
#[inline(always)]
fn possible(limits: &Limits, launch: &Launch<'_>) -> bool {
    // `0 - 1` is beyond every limit.
    let within = |extents: &[u32; 3], most: &[u32; 3]| {
        // All are compared, without a branch each.
        extents.iter().zip(most).fold(true, |all, (extent, most)| all & (extent.wrapping_sub(1) < *most))
    };
    within(&launch.grid, &limits.grid)
        & within(&launch.block, &limits.block)
        & (threads(launch) <= u64::from(limits.threads))
}

/// Threads a block. The product of extents that are possible each does not overflow.
#[inline(always)]
fn threads(launch: &Launch<'_>) -> u64 {
    launch.block.iter().map(|extent| u64::from(*extent)).product()
}

#[inline(always)]
fn check(limits: &Limits, kernel: &Kernel, launch: &Launch<'_>) -> Answer {
    if threads(launch) > kernel.most_threads {
        cold_path();
        return Err(too_many_threads(limits, kernel, threads(launch)));
    }
    ensure(!launch.cooperative || limits.cooperative, NOT_SUPPORTED)
}

/// What a block with more threads than the kernel takes is answered: that the kernel's registers are too many for it, or, where
/// they are not, that it is beyond `__launch_bounds__`, which is a wrong value.
#[cold]
fn too_many_threads(limits: &Limits, kernel: &Kernel, threads: u64) -> Code {
    // A warp takes its registers in multiples of 8 a thread (CUDA programming guide, "Compute Capabilities").
    let registers =
        kernel.attribute(NUM_REGS).and_then(|n| u64::try_from(n).ok()).map(|n| n.next_multiple_of(8));
    match registers {
        Some(n) if n * threads.next_multiple_of(32) <= u64::from(limits.registers) => INVALID_VALUE,
        _ => LAUNCH_OUT_OF_RESOURCES,
    }
}

/// Blocks that wait for each other must all run at once: else CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE. The worker is asked
/// once for the same kernel launched in the same form.
#[cold]
#[inline(never)]
fn runs_at_once(cx: Cx, function: &objects::Function, limits: &Limits, launch: &Launch<'_>) -> Answer {
    let (threads, dynamic_shared) = (threads(launch), launch.dynamic_shared);
    let known = *lock(&function.resident);
    // An attribute may change the answer.
    let fresh = !function.any_set.load(Relaxed);
    let blocks = if fresh && (known.threads, known.dynamic_shared) == (threads, dynamic_shared) {
        known.blocks
    } else {
        let mut blocks = 0;
        let (handle, shared) = (launch.function.0, dynamic_shared as usize);
        crate::send::cuOccupancyMaxActiveBlocksPerMultiprocessor(
            cx,
            &mut blocks,
            handle,
            threads as i32,
            shared,
        )?;
        *lock(&function.resident) = Resident { threads, dynamic_shared, blocks };
        blocks
    };
    let room = u64::from(limits.multiprocessors) * blocks.max(0) as u64;
    let wanted = launch.grid.iter().map(|extent| u64::from(*extent)).product::<u64>();
    if wanted > room { Err(COOPERATIVE_LAUNCH_TOO_LARGE) } else { Ok(()) }
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;

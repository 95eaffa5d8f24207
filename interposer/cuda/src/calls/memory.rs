//! Device memory.

use std::sync::atomic::Ordering::Relaxed;

use cudarc::driver::sys::CUdeviceptr;
use gpupool_protocol::api::kinds;
use gpupool_protocol::wire::codec::BadRecord;

use super::credit;
use super::pool::handle_of;
use crate::args::stream;
use crate::code::{Answer, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::send;
use crate::state::memory::Origin;

pub fn cuMemGetInfo_v2(cx: Cx, free: Ptr<usize>, total: Ptr<usize>) -> Answer {
    let (free, total) = (free.not_null()?, total.not_null()?);
    let ordinal = cx.current()?.device.load(Relaxed);
    // Read first: what another thread allocates meanwhile is then missing in neither number.
    let unused = cx.session.device(ordinal)?.heap.unused();
    let (mut of_device, mut all) = (0, 0);
    send::mem_info(cx, &mut of_device, &mut all)?;
    free.set(of_device.saturating_add(unused).min(all) as usize)?;
    total.set(all as usize)
}

pub fn cuMemAlloc_v2(cx: Cx, address: Ptr<CUdeviceptr>, bytes: usize) -> Answer {
    address.not_null()?;
    cx.current()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let at = match credit::allocate(cx, bytes as u64)? {
        Some(at) => at,
        None => {
            let (mut at, mut pitch) = (0, 0);
            credit::with_room(cx, credit::device(cx)?, bytes as u64, || {
                send::mem_alloc(cx, bytes as u64, 0, 0, 0, 0, &mut at, &mut pitch)
            })?;
            at
        }
    };
    cx.session.memory.add(at, bytes as u64, cx.context, Origin::Plain);
    address.set(at)
}

pub fn cuMemAllocPitch_v2(
    cx: Cx,
    address: Ptr<CUdeviceptr>,
    pitch: Ptr<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> Answer {
    let (address, pitch) = (address.not_null()?, pitch.not_null()?);
    cx.current()?;
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(INVALID_VALUE);
    }
    let (mut at, mut row) = (0, 0);
    let least = (width as u64).saturating_mul(height as u64);
    credit::with_room(cx, credit::device(cx)?, least, || {
        send::mem_alloc(cx, 0, 1, width as u64, height as u64, element, &mut at, &mut row)
    })?;
    if !is_pitch(row, width as u64) {
        // The program would believe it, and reach for memory that is not there.
        return Err(cx.session.bad_answer(BadRecord::OutOfRange));
    }
    cx.session.memory.add(at, row.saturating_mul(height as u64), cx.context, Origin::Plain);
    pitch.set(row as usize)?;
    address.set(at)
}

/// Can this be the pitch of rows of `width` bytes? Drivers round up to some hundred bytes; a MiB more is no driver's.
fn is_pitch(pitch: u64, width: u64) -> bool {
    pitch.checked_sub(width).is_some_and(|beyond| beyond < 1 << 20)
}

pub fn cuMemFree_v2(cx: Cx, address: CUdeviceptr) -> Answer {
    cx.current()?;
    if address == 0 {
        return Ok(());
    }
    let range = cx.session.memory.take(address)?;
    if let Some(device) = credit::owner(cx, address) {
        return credit::free(cx, device, range.context, address, range.size);
    }
    send::mem_free(cx.within(range.context), address).inspect_err(|_| cx.session.memory.put_back(range))
}

pub fn cuMemAllocAsync(
    cx: Cx,
    address: Ptr<CUdeviceptr>,
    bytes: usize,
    hstream: Raw<kinds::Stream>,
) -> Answer {
    allocate(cx, address, bytes, 0, hstream)
}

pub fn cuMemAllocFromPoolAsync(
    cx: Cx,
    address: Ptr<CUdeviceptr>,
    bytes: usize,
    pool: Raw<kinds::MemPool>,
    hstream: Raw<kinds::Stream>,
) -> Answer {
    let pool = handle_of(cx, pool)?;
    allocate(cx, address, bytes, pool, hstream)
}

fn allocate(
    cx: Cx,
    address: Ptr<CUdeviceptr>,
    bytes: usize,
    pool: u64,
    hstream: Raw<kinds::Stream>,
) -> Answer {
    address.not_null()?;
    cx.current()?;
    let stream = stream(cx, hstream)?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let mut at = 0;
    let context = stream.object.map_or(cx.context, |stream| stream.context.load(Relaxed));
    // The memory is the pool's device's, or that of the stream.
    let ordinal = match cx.session.pools.get(pool) {
        Some(pool) => pool.device.load(Relaxed),
        None => cx.within(context).current()?.device.load(Relaxed),
    };
    credit::with_room(cx, cx.session.device(ordinal)?, bytes as u64, || {
        send::mem_alloc_async(cx, bytes as u64, pool, stream, &mut at)
    })?;
    cx.session.memory.add(at, bytes as u64, context, Origin::Pooled);
    address.set(at)
}

pub fn cuMemFreeAsync(cx: Cx, address: CUdeviceptr, hstream: Raw<kinds::Stream>) -> Answer {
    cx.current()?;
    let stream = stream(cx, hstream)?;
    if credit::owner(cx, address).is_some() {
        // The driver would say it too: it is of no pool.
        return Err(INVALID_VALUE);
    }
    let range = cx.session.memory.take(address)?;
    send::mem_free_async(cx, address, stream).inspect_err(|_| cx.session.memory.put_back(range))
}

pub fn cuMemGetAddressRange_v2(
    cx: Cx,
    base: Ptr<CUdeviceptr>,
    size: Ptr<usize>,
    address: CUdeviceptr,
) -> Answer {
    cx.current()?;
    let (start, bytes) = match cx.session.memory.range_of(address) {
        Ok(range) => (range.base, range.size),
        Err(error) => cx.session.pinned.range_on_device(address).ok_or(error)?,
    };
    base.set_if_wanted(start);
    size.set_if_wanted(bytes as usize);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_pitch;

    #[test]
    fn a_pitch_is_no_less_than_a_row_and_not_far_beyond() {
        for (pitch, width) in [(512, 1), (512, 512), (1024, 513), (1 << 31, (1 << 31) - 200)] {
            assert!(is_pitch(pitch, width), "{pitch} for {width}");
        }
        for (pitch, width) in [(0, 1), (511, 512), (u64::MAX, 1), (1 << 32, 100), (1 << 20, 0)] {
            assert!(!is_pitch(pitch, width), "{pitch} for {width}");
        }
    }
}

//! Allocation of device memory from credit ([`crate::state::heap`]): when the worker is asked for more, what is waited for, and
//! what is given back.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gpupool_protocol::api::numbers;

use super::stream::cuCtxSynchronize;
use crate::code::{ALREADY_MAPPED, Answer, OUT_OF_MEMORY};
use crate::cx::Cx;
use crate::log::say;
use crate::send;
use crate::session::Device;
use crate::state::heap::{self, Heap};
use crate::state::held::Held;
use crate::state::objects::{Context, Stream, lock};
use crate::state::table::Table;

/// Addresses that are proposed to the worker before its driver chooses.
const TRIES: u64 = 8;
/// Where proposed ranges begin: at addresses that the kernel gives to no mapping by itself.
const FIRST: u64 = 0x3000_0000_0000;
/// So much memory may wait for posted work before the next allocation waits for that work instead of taking more.
const WAITING_MAX: u64 = 256 << 20;
/// Contexts whose work is waited for at the same time when memory goes back to the server.
const AT_ONCE: usize = 16;

/// The device of the current context.
pub fn device(cx: Cx) -> Answer<&'static Device> {
    cx.session.device(cx.current()?.device.load(Relaxed))
}

/// Allocates; `None` where the driver chooses addresses.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY, when the device has no such memory even after everything unused was given back; errors of earlier
/// work, where it had to be waited for.
pub fn allocate(cx: Cx, bytes: u64) -> Answer<Option<u64>> {
    let device = device(cx)?;
    let bytes = heap::size(bytes)?;
    match device.heap.take(bytes) {
        Some(at) => Ok(Some(at)),
        None => allocate_slowly(cx, device, bytes),
    }
}

fn allocate_slowly(cx: Cx, device: &'static Device, bytes: u64) -> Answer<Option<u64>> {
    let heap = &device.heap;
    let _growing = lock(&heap.growing);
    if !heap.exists(|| place(cx, device)) {
        return Ok(None);
    }
    reap(cx, heap);
    if heap.waiting() >= WAITING_MAX.max(bytes) {
        settle(cx, heap)?;
    }
    if let Some(at) = heap.take(bytes) {
        return Ok(Some(at));
    }
    match grow(cx, device, bytes) {
        Err(OUT_OF_MEMORY) => {}
        other => return other.map(Some),
    }
    // Everything that can be had: what was freed, and then what lies unused elsewhere.
    settle(cx, heap)?;
    if let Some(at) = heap.take(bytes) {
        return Ok(Some(at));
    }
    give_back(cx, device, Some(0))?;
    // What another thread is giving back is not lost for this one: it is the device's by then, or here again.
    heap.wait_for_leaving();
    if let Some(at) = heap.take(bytes) {
        return Ok(Some(at));
    }
    match grow(cx, device, bytes) {
        Err(OUT_OF_MEMORY) if reclaim(cx, device, bytes) => grow(cx, device, bytes).map(Some),
        other => other.map(Some),
    }
}

/// Has other sessions give back what they hold unused, for an allocation of `bytes` that has found no memory. Whether that
/// may have helped.
fn reclaim(cx: Cx, device: &Device, bytes: u64) -> bool {
    let possible = bytes <= device.total_memory as u64;
    possible && cx.session.uses.revoke && send::heap_reclaim(cx, device.pool).is_ok()
}

/// Carries out what takes `bytes` (as far as known) of a device's memory and does not come from credit; once more, if it finds
/// none, when all that is unused was given back, of this session and of others.
pub fn with_room(cx: Cx, device: &Device, bytes: u64, mut allocate: impl FnMut() -> Answer) -> Answer {
    match allocate() {
        Err(OUT_OF_MEMORY) => {}
        other => return other,
    }
    {
        let heap = &device.heap;
        let _growing = lock(&heap.growing);
        settle(cx, heap)?;
        give_back(cx, device, Some(0))?;
        heap.wait_for_leaving();
    }
    reclaim(cx, device, bytes);
    allocate()
}

/// Other sessions need memory of this device: gives back everything unused, and returns when it is there. What was freed
/// behind work that nobody has waited for is waited for, so on a thread of its own; the work of one context does not hold up
/// what was freed in another.
pub fn revoke(cx: Cx, device: &'static Device) {
    let heap = &device.heap;
    reap(cx, heap);
    let _ = give_back(cx, device, Some(0));
    let contexts = heap.contexts();
    let (apart, here) = contexts.split_at(contexts.len().saturating_sub(1).min(AT_ONCE));
    std::thread::scope(|scope| {
        for &context in apart {
            let thread = std::thread::Builder::new().name("gpupool-settle".into());
            if thread.spawn_scoped(scope, move || revoke_behind(cx, device, context)).is_err() {
                revoke_behind(cx, device, context);
            }
        }
        here.iter().for_each(|context| revoke_behind(cx, device, *context));
    });
    // The program may be giving back as well.
    heap.wait_for_leaving();
    // What did not go is tried again when the server asks again. Contexts that cannot be waited for take theirs with them.
    if give_back(cx, device, Some(0)).is_err() {
        tell(cx, device);
    }
}

/// Waits for the work of a context, without taking an error from the call that shall report it, and gives back what was freed
/// behind it.
fn revoke_behind(cx: Cx, device: &Device, context: u64) {
    let frees = device.heap.frees();
    let pending = cx.within(context).begin(numbers::context_settle, false, 0, |_| ());
    if pending.and_then(|p| p.finish_quietly(|from| from.end())).is_ok() {
        device.heap.settled(context, frees);
        let _ = give_back(cx, device, Some(0));
    }
}

/// Something is unused on this device; says it where the server was told that nothing is.
#[inline]
fn tell(cx: Cx, device: &Device) {
    if device.heap.is_news() {
        cx.session.revocations.unused(device.pool);
    }
}

/// Agrees with the worker on a range of addresses, many times as large as the device's memory.
fn place(cx: Cx, device: &Device) -> Option<(Held, u64)> {
    if !cx.session.uses.post_alloc || !cx.session.answers(numbers::heap_place) {
        return None;
    }
    let bytes = (4 * device.total_memory as u64).checked_next_power_of_two()?.clamp(1 << 35, 1 << 42);
    let process = u64::from(std::process::id()) % 61;
    // Ranges that did not suit are held as well, so that each try is another one.
    let mut unsuitable = Vec::new();
    for attempt in 0..TRIES {
        let wish = FIRST + bytes * (process + 61 * attempt + 67 * device.pool as u64) % (1 << 46);
        let held = Held::reserve(wish, bytes)?;
        let mut granularity = 0;
        match send::heap_place(cx, device.pool, held.base(), held.bytes(), &mut granularity) {
            Ok(()) => return Some((held, granularity)),
            Err(ALREADY_MAPPED) => unsuitable.push(held),
            Err(_) => break,
        }
    }
    say!(
        Info,
        "device memory is allocated call by call: the driver has no range of addresses that is free here too"
    );
    None
}

/// Asks the worker for memory for an allocation.
fn grow(cx: Cx, device: &Device, bytes: u64) -> Answer<u64> {
    let growth = device.heap.plan(bytes, cx.session.uses.credit)?;
    let (mut got, mut left) = (0, 0);
    let heap::Growth { address, least, most, piece } = growth;
    let grown = send::heap_grow(cx, device.pool, address, least, most, piece, &mut got, &mut left);
    match grown {
        Ok(()) if (least..=most).contains(&got) && got.is_multiple_of(piece) => {
            // Of nothing left nothing is kept.
            let left = if cx.session.uses.credit { left } else { 0 };
            device.heap.grown(growth, got, left, bytes);
            if got > bytes {
                tell(cx, device);
            }
            Ok(address)
        }
        Ok(()) => Err(cx.session.bad_answer(gpupool_protocol::wire::codec::BadRecord::OutOfRange)),
        Err(error) => {
            device.heap.refused(growth);
            Err(error)
        }
    }
}

/// Frees memory of credit.
///
/// # Errors
/// Of earlier work, where it had to be waited for. The memory is free all the same.
pub fn free(cx: Cx, device: &Device, context: u64, address: u64, bytes: u64) -> Answer {
    let heap = &device.heap;
    let surplus = heap.free(context, address, heap::size(bytes)?);
    tell(cx, device);
    if !surplus {
        return Ok(());
    }
    // As a driver that frees at once: the work that may use it is waited for. One thread at a time counts what it waits for.
    let _growing = lock(&heap.growing);
    reap(cx, heap);
    settle(cx, heap)?;
    give_back(cx, device, None)
}

/// The device whose credit an address is of.
pub fn owner(cx: Cx, address: u64) -> Option<&'static Device> {
    cx.session.devices.iter().find(|device| device.heap.holds(address))
}

/// A context is gone, with the work in it; `ranges` were its memory.
pub fn context_gone(cx: Cx, context: u64, ranges: impl Iterator<Item = (u64, u64)>) {
    for (address, bytes) in ranges {
        if let (Some(device), Ok(bytes)) = (owner(cx, address), heap::size(bytes)) {
            device.heap.free(context, address, bytes);
            tell(cx, device);
        }
    }
    cx.session.devices.iter().for_each(|device| device.heap.settled(context, u64::MAX));
}

/// Takes what was freed where the work of its context is known to be done.
fn reap(cx: Cx, heap: &Heap) {
    let frees = heap.frees();
    for context in heap.contexts() {
        if is_quiet(cx, context) {
            heap.settled(context, frees);
        }
    }
}

/// Whether a wait was over for everything that was posted in a context.
fn is_quiet(cx: Cx, context: u64) -> bool {
    let object = cx.session.contexts.get(context);
    object.is_some_and(|object| has_nothing_under_way(context, object, &cx.session.streams))
}

/// The streams first: what one has left that goes meanwhile is counted before it is gone.
fn has_nothing_under_way(context: u64, object: &Context, streams: &Table<Stream>) -> bool {
    let mut streams = streams.iter().filter(|(_, stream)| stream.context.load(Acquire) == context);
    streams.all(|(_, stream)| stream.progress.is_synchronised())
        && object.shared.is_synchronised()
        && object.left.is_synchronised()
}

/// Waits for the work that may use what was freed.
fn settle(cx: Cx, heap: &Heap) -> Answer {
    for context in heap.contexts() {
        let frees = heap.frees();
        let synchronised = cuCtxSynchronize(cx.within(context));
        if synchronised.is_ok() {
            heap.settled(context, frees);
        } else if context == cx.context {
            return synchronised;
        }
    }
    Ok(())
}

/// Gives unused memory back to the device until no more than `keep` (or what may be kept) is left. Run by run: a driver may
/// wait for kernels before it takes memory back, and what is not its turn yet can be allocated as long as that lasts.
fn give_back(cx: Cx, device: &Device, keep: Option<u64>) -> Answer {
    let mut result = Ok(());
    let mut from = 0;
    while let Some(run) = device.heap.spare(keep, from) {
        let shrunk = send::heap_shrink(cx, device.pool, run.0, run.1);
        device.heap.shrunk(run, shrunk.is_ok());
        result = result.and(shrunk);
        from = run.0 + run.1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::stream;
    use gpupool_protocol::handle::Kind;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    /// One thread destroys streams whose work nobody has waited for, another one looks on.
    #[test]
    fn work_of_a_stream_is_under_way_before_during_and_after_its_end() {
        let (contexts, streams) = (Table::<Context>::of(Kind::Context), Table::<Stream>::of(Kind::Stream));
        let create = |context: u64| {
            let fill = |_, stream: &Stream| {
                stream.context.store(context, Relaxed);
                stream.progress.reset();
                Ok(())
            };
            streams.create(fill).unwrap().0
        };
        let new = |_, context: &Context| {
            context.left.reset();
            Ok(())
        };
        // The context to look at, 0 between two; all handles differ.
        let shown = AtomicU64::new(0);
        let looks = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let onlooker = scope.spawn(|| {
                let mut wrong = 0;
                loop {
                    let context = shown.load(Acquire);
                    if context == u64::MAX {
                        return wrong;
                    }
                    let Some(object) = contexts.get(context) else { continue };
                    let quiet = has_nothing_under_way(context, object, &streams);
                    looks.fetch_add(1, Relaxed);
                    wrong += u32::from(quiet && shown.load(Acquire) == context);
                }
            });
            for _ in 0..2_000 {
                let (context, ()) = contexts.create(new).unwrap();
                let handle = create(context);
                streams.get(handle).unwrap().progress.post();
                shown.store(context, SeqCst);
                let seen = looks.load(Relaxed);
                stream::destroy(&streams, &contexts, handle, |home| {
                    assert_eq!(home, context);
                    Ok(())
                })
                .unwrap();
                // The place is used again at once.
                let next = create(context);
                while looks.load(Relaxed) < seen + 2 {
                    std::thread::yield_now();
                }
                shown.store(0, SeqCst);
                streams.remove(next, |_| ()).unwrap();
                contexts.remove(context, |_| ()).unwrap();
            }
            shown.store(u64::MAX, SeqCst);
            assert_eq!(onlooker.join().unwrap(), 0, "looks that found nothing under way");
        });
    }
}

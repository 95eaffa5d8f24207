//! Work that names what is gone by the time it runs, and calls that name what others take away: errors, never the end of the
//! process.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const BYTES: usize = 4 << 20;

fn pinned() -> *mut c_void {
    let mut memory = null_mut();
    ok!(cuMemHostAlloc(&mut memory, BYTES, 0));
    memory
}

fn pages() -> *mut c_void {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let pages = unsafe { libc::mmap(null_mut(), BYTES, access, kind, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED);
    pages
}

fn unmap(pages: *mut c_void) {
    assert_eq!(unsafe { libc::munmap(pages, BYTES) }, 0);
}

/// A graph of one node, instantiated.
fn exec_of(add: impl FnOnce(H) -> CUresult) -> H {
    let (mut graph, mut exec) = (0, 0);
    ok!(cuGraphCreate(&mut graph, 0));
    assert_eq!(add(graph), CUDA_SUCCESS);
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphDestroy(graph));
    exec
}

fn copied(to: u64, from: u64) -> sys::CUDA_MEMCPY3D {
    // No kind of memory is 0, so there is no such structure before the kinds are set.
    let mut copy = std::mem::MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
    let mut copy = unsafe {
        (*copy.as_mut_ptr()).srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        (*copy.as_mut_ptr()).dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        copy.assume_init()
    };
    (copy.srcDevice, copy.dstDevice) = (from, to);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (64, 1, 1);
    copy
}

fn copy_node(context: H, to: u64, from: u64) -> H {
    let mut node = 0;
    exec_of(|graph| cu!(cuGraphAddMemcpyNode(&mut node, graph, null(), 0, &copied(to, from), context)))
}

fn kernel_node(to: u64, from: u64) -> H {
    let function = function(module(MOVE), "move");
    let mut values = [to, from];
    let [to, from] = &mut values;
    let mut pointers = [std::ptr::from_mut(to).cast::<c_void>(), std::ptr::from_mut(from).cast()];
    let mut node: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    node.func = std::ptr::with_exposed_provenance_mut(function);
    (node.gridDimX, node.gridDimY, node.gridDimZ) = (1, 1, 1);
    (node.blockDimX, node.blockDimY, node.blockDimZ) = (1, 1, 1);
    node.kernelParams = pointers.as_mut_ptr();
    exec_of(|graph| cu!(cuGraphAddKernelNode_v2(&mut 0, graph, null(), 0, &node)))
}

/// Makes a graph that is right, takes away what it uses, and launches it.
fn launched_too_late(what: &str, make: impl FnOnce(H, u64) -> (H, Box<dyn FnOnce()>)) {
    let context = context();
    let kept = alloc(BYTES);
    let (exec, take_away) = make(context.0, kept);
    ok!(cuGraphLaunch(exec, 0));
    ok!(cuCtxSynchronize());
    take_away();
    assert_eq!(cu!(cuGraphLaunch(exec, 0)), CUDA_SUCCESS, "{what}");
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS, "{what}");
    ok!(cuGraphExecDestroy(exec));
    drop(context);
}

#[test]
fn graphs_whose_memory_is_gone_are_700() {
    let device = || alloc(BYTES);
    let freed = |memory: u64| Box::new(move || ok!(cuMemFree_v2(memory))) as Box<dyn FnOnce()>;
    let freed_host = |memory: *mut c_void| Box::new(move || ok!(cuMemFreeHost(memory))) as Box<dyn FnOnce()>;
    launched_too_late("a kernel that reads device memory", |_, kept| {
        let gone = device();
        (kernel_node(kept, gone), freed(gone))
    });
    launched_too_late("a kernel that writes pinned memory", |_, kept| {
        let gone = pinned();
        (kernel_node(gone.addr() as u64, kept), freed_host(gone))
    });
    launched_too_late("a copy from device memory", |context, kept| {
        let gone = device();
        (copy_node(context, kept, gone), freed(gone))
    });
    launched_too_late("a copy to pinned memory", |context, kept| {
        let gone = pinned();
        (copy_node(context, gone.addr() as u64, kept), freed_host(gone))
    });
    launched_too_late("a copy from pinned memory", |context, kept| {
        let gone = pinned();
        (copy_node(context, kept, gone.addr() as u64), freed_host(gone))
    });
    launched_too_late("a copy between pinned and other memory", |context, _| {
        let (gone, own) = (pinned(), pages());
        let exec = copy_node(context, own.expose_provenance() as u64, gone.addr() as u64);
        (exec, freed_host(gone))
    });
    if mappings_are_told() {
        launched_too_late("a copy to memory of the program", |context, kept| {
            let gone = pages();
            (copy_node(context, gone.expose_provenance() as u64, kept), Box::new(move || unmap(gone)))
        });
    }
    launched_too_late("a copy from registered memory", |context, kept| {
        let gone = pages();
        ok!(cuMemHostRegister_v2(gone, BYTES, 0));
        (copy_node(context, kept, gone.expose_provenance() as u64), Box::new(move || unmap(gone)))
    });
    launched_too_late("a set of device memory", |context, _| {
        let gone = device();
        let mut set: sys::CUDA_MEMSET_NODE_PARAMS = unsafe { std::mem::zeroed() };
        (set.dst, set.elementSize, set.width, set.height) = (gone, 1, 64, 1);
        let exec = exec_of(|graph| cu!(cuGraphAddMemsetNode(&mut 0, graph, null(), 0, &set, context)));
        (exec, freed(gone))
    });
}

#[test]
fn stream_operations_on_words_that_go_away_are_700() {
    for registered in [false, true] {
        let context = context();
        let other = api::context();
        let word = if registered { pages() } else { pinned() };
        if registered {
            ok!(cuMemHostRegister_v2(word, BYTES, 0));
        }
        ok!(cuCtxSetCurrent(context.0));
        let waiting = stream(1);
        ok!(cuStreamWaitValue32_v2(waiting, word.expose_provenance() as u64, 1, 0));
        // Of the other context, which has nothing to wait for.
        ok!(cuCtxSetCurrent(other.0));
        if registered {
            unmap(word);
        } else {
            ok!(cuMemFreeHost(word));
        }
        ok!(cuCtxSetCurrent(context.0));
        assert_eq!(cu!(cuStreamSynchronize(waiting)), CUDA_ERROR_ILLEGAL_ADDRESS);
        if registered {
            ok!(cuCtxSetCurrent(other.0));
            ok!(cuMemHostUnregister(word));
        }
        drop((context, other));
    }
}

#[test]
fn virtual_memory_that_is_unmapped_beside_kernels_is_700_at_most() {
    let context = context();
    let properties = Properties { kind: 1, handles: 1, location: on_device(0), windows: 0, flags: 0 };
    let access = Description { location: on_device(0), flags: 3 };
    let (mut range, mut backing) = (0, 0);
    ok!(cuMemAddressReserve(&mut range, BYTES, 0, 0, 0));
    ok!(cuMemCreate(&mut backing, BYTES, &properties, 0));
    let stop = AtomicBool::new(false);
    let runs = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                let result = move_on(0, range + 64, range);
                assert!(matches!(result, CUDA_SUCCESS | CUDA_ERROR_ILLEGAL_ADDRESS), "{result:?}");
                runs.fetch_add(1, SeqCst);
            }
        });
        let enough = |n: usize| runs.load(SeqCst) >= n;
        let mut turns = 0;
        while turns < 50 || !enough(20) {
            ok!(cuMemMap(range, BYTES, 0, backing, 0));
            ok!(cuMemSetAccess(range, BYTES, &access, 1));
            ok!(cuMemSetAccess(range, BYTES, &Description { flags: 0, ..access }, 1));
            ok!(cuMemSetAccess(range, BYTES, &access, 1));
            ok!(cuMemUnmap(range, BYTES));
            turns += 1;
        }
        stop.store(true, SeqCst);
    });
    ok!(cuMemRelease(backing));
    ok!(cuMemAddressFree(range, BYTES));
    drop(context);
}

/// A number from a generator by D. Knuth (MMIX).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// What threads of one program do to each other's objects when it is wrong in every way.
fn meddle(context: H, kinds: u64, seed: u64, objects: &[AtomicUsize; 16], memory: &[AtomicUsize; 4]) {
    ok!(cuCtxSetCurrent(context));
    let mut state = seed;
    for _ in 0..500 {
        let at = next(&mut state) as usize;
        let (object, other) = (&objects[at % 16], objects[(at >> 8) % 16].load(SeqCst));
        let place = &memory[(at >> 12) % 4];
        let handle = object.load(SeqCst);
        // Results are of no interest here: another thread may have taken everything away.
        match next(&mut state) % kinds {
            0 | 1 => {
                let mut new = 0;
                let stream = at & (1 << 20) != 0;
                let made =
                    if stream { cu!(cuStreamCreate(&mut new, 1)) } else { cu!(cuEventCreate(&mut new, 0)) };
                if made == CUDA_SUCCESS {
                    object.store(new, SeqCst);
                }
            }
            2 => _ = cu!(cuStreamDestroy_v2(object.swap(0x1234, SeqCst).max(3))),
            3 => _ = cu!(cuEventDestroy_v2(object.swap(0, SeqCst))),
            4 | 5 => _ = cu!(cuEventRecord(handle, other)),
            6 | 7 => _ = cu!(cuStreamWaitEvent(handle, other, 0)),
            8 => _ = cu!(cuStreamQuery(handle.max(3))),
            9 => _ = cu!(cuEventQuery(handle)),
            10 => {
                let mut new = 0;
                if cu!(cuMemAllocAsync(&mut new, 4096, handle)) == CUDA_SUCCESS {
                    place.store(new as usize, SeqCst);
                }
            }
            11 => _ = cu!(cuMemFreeAsync(place.swap(0, SeqCst) as u64, handle)),
            12 => _ = cu!(cuMemsetD8Async(place.load(SeqCst) as u64, 1, 64, handle)),
            _ => {
                _ = cu!(cuMemcpyDtoDAsync_v2(
                    place.load(SeqCst) as u64,
                    place.load(SeqCst) as u64,
                    64,
                    handle
                ))
            }
        }
    }
}

#[test]
fn objects_that_other_threads_take_away_are_errors_at_most() {
    // Several contexts, as memory that is set or copied after it was freed ends one; half of them do without.
    for round in 0..12 {
        let kinds = if round % 2 == 0 { 12 } else { 14 };
        let context = context();
        let objects: [AtomicUsize; 16] = std::array::from_fn(|_| AtomicUsize::new(stream(1)));
        let memory: [AtomicUsize; 4] = std::array::from_fn(|_| AtomicUsize::new(alloc(4096) as usize));
        std::thread::scope(|scope| {
            for seed in 1..5 {
                let (objects, memory) = (&objects, &memory);
                scope.spawn(move || meddle(context.0, kinds, 100 * round + seed, objects, memory));
            }
        });
        let end = cu!(cuCtxSynchronize());
        assert!(end == CUDA_SUCCESS || (end == CUDA_ERROR_ILLEGAL_ADDRESS && kinds == 14), "{end:?}");
        drop(context);
    }
    let healthy = api::context();
    let memory = alloc(64);
    ok!(cuMemsetD8_v2(memory, 9, 64));
    assert_eq!(read(memory, 64), [9; 64]);
    drop(healthy);
}

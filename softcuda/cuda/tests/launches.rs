//! Launches by the calls of CUDA 3, clusters, and small questions about devices and modules.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Barrier;

#[test]
fn parameters_that_are_set_one_by_one() {
    let _context = context();
    let (number, memory) = (function(module(PTX), "number"), alloc(64));
    ok!(cuMemsetD8_v2(memory, 0, 64));
    assert_eq!(cu!(cuLaunchGrid(number, 1, 1)), CUDA_ERROR_INVALID_VALUE, "no block yet");
    assert_eq!(cu!(cuFuncSetBlockShape(number, 0, 1, 1)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuFuncSetBlockShape(number, 4, 1, 1));
    ok!(cuFuncSetSharedSize(number, 0));
    ok!(cuParamSetv(number, 0, std::ptr::from_ref(&memory).cast(), 8));
    ok!(cuParamSeti(number, 8, 10));
    assert_eq!(cu!(cuParamSeti(number, -4, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuParamSeti(number, 1 << 20, 1)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuParamSetSize(number, 12));
    ok!(cuLaunchGrid(number, 2, 1));
    ok!(cuCtxSynchronize());
    let words: Vec<u8> = read(memory, 64).chunks(4).map(|word| word[0]).collect();
    assert_eq!(words, [10, 11, 12, 13, 14, 15, 16, 17, 0, 0, 0, 0, 0, 0, 0, 0]);
    // What was set stays for the next launch; fewer bytes than the kernel has parameters are refused.
    ok!(cuParamSeti(number, 8, 20));
    ok!(cuLaunchGridAsync(number, 1, 1, stream(1)));
    ok!(cuCtxSynchronize());
    assert_eq!(read(memory, 4), [20, 0, 0, 0]);
    ok!(cuParamSetSize(number, 8));
    assert_eq!(cu!(cuLaunchGrid(number, 1, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuLaunchGrid(7, 1, 1)), CUDA_ERROR_INVALID_HANDLE);
}

fn configuration(threads: u32, attributes: &mut [sys::CUlaunchAttribute]) -> sys::CUlaunchConfig {
    sys::CUlaunchConfig {
        gridDimX: 16,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: null_mut(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

fn cluster_of(blocks: u32) -> [sys::CUlaunchAttribute; 1] {
    let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
    attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = blocks;
    attribute.value.clusterDim.y = 1;
    attribute.value.clusterDim.z = 1;
    [attribute]
}

fn clusters() {
    let _context = context();
    let number = function(module(PTX), "number");
    let (mut size, mut held, mut each) = (0, 0, 0);
    ok!(cuOccupancyMaxPotentialClusterSize(&mut size, number, &configuration(128, &mut [])));
    // The portable size of the programming guide.
    assert_eq!(size, 8);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut each, number, 128, 0));
    ok!(cuOccupancyMaxActiveClusters(&mut held, number, &configuration(128, &mut cluster_of(2))));
    assert_eq!(held, each * 2 / 2, "two multiprocessors, clusters of two blocks");
    let none = cu!(cuOccupancyMaxActiveClusters(&mut held, number, &configuration(128, &mut [])));
    assert_eq!(none, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    let large =
        cu!(cuOccupancyMaxActiveClusters(&mut held, number, &configuration(128, &mut cluster_of(16))));
    assert_eq!(large, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    let wide = cu!(cuOccupancyMaxPotentialClusterSize(&mut size, number, &configuration(2048, &mut [])));
    assert_eq!(wide, CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn occupancy_of_clusters() {
    const NAME: &str = "occupancy_of_clusters";
    let fleet = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("clusters.toml");
    std::fs::write(&fleet, "[[device]]\ncapability = \"9.0\"\nmultiprocessors = 2\n").unwrap();
    in_child(NAME, &[("SOFTCUDA_DEVICES", fleet.to_str().unwrap())], std::process::Stdio::null(), clusters);
}

#[test]
fn no_clusters_below_9_0() {
    let _context = context();
    let number = function(module(PTX), "number");
    let mut size = 0;
    let code = cu!(cuOccupancyMaxPotentialClusterSize(&mut size, number, &configuration(128, &mut [])));
    assert_eq!(code, CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn atomics_notifications_and_references() {
    let context = context();
    // Addition of integers, compare and swap, minimum of floats.
    let (mut found, operations) = ([0u32; 3], [0u32, 9, 11]);
    ok!(cuDeviceGetHostAtomicCapabilities(found.as_mut_ptr(), operations.as_ptr(), 3, 0));
    // Signed, unsigned, reduction, 32 and 64 bits; no reduction but 128 bits; none.
    assert_eq!(found, [0b01_1111, 0b11_1011, 0]);
    let unknown = cu!(cuDeviceGetHostAtomicCapabilities(found.as_mut_ptr(), [13u32].as_ptr(), 1, 0));
    assert_eq!(unknown, CUDA_ERROR_INVALID_VALUE);
    let (mut widest, mut attribute) = (0, 0);
    ok!(cuDeviceGetTexture1DLinearMaxWidth(&mut widest, 0x20, 1, 0));
    ok!(cuDeviceGetAttribute(&mut attribute, 69, 0));
    assert_eq!(widest, attribute as usize);
    let code = cu!(cuDeviceGetTexture1DLinearMaxWidth(&mut widest, 0x20, 3, 0));
    assert_eq!(code, CUDA_ERROR_INVALID_VALUE);

    extern "C" fn told(_: *mut c_void, _: *mut c_void, _: H) {}
    let callback = told as *const c_void;
    let mut registration = 0;
    assert_eq!(
        cu!(cuDeviceRegisterAsyncNotification(0, null(), null_mut(), &mut registration)),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(cuDeviceRegisterAsyncNotification(0, callback, null_mut(), &mut registration));
    ok!(cuDeviceUnregisterAsyncNotification(0, registration));
    let twice = cu!(cuDeviceUnregisterAsyncNotification(0, registration));
    assert_eq!(twice, CUDA_ERROR_INVALID_VALUE);

    let (module, mut reference) = (module(PTX), 0);
    assert_eq!(cu!(cuModuleGetTexRef(&mut reference, module, c"any".as_ptr())), CUDA_ERROR_NOT_FOUND);
    assert_eq!(cu!(cuModuleGetTexRef(&mut reference, 7, c"any".as_ptr())), CUDA_ERROR_INVALID_HANDLE);

    // A context that is attached once more lives until the second detaching.
    let mut again = 0;
    assert_eq!(cu!(cuCtxAttach(&mut again, 1)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuCtxAttach(&mut again, 0));
    assert_eq!(again, context.0);
    assert_eq!(cu!(cuCtxDetach(7)), CUDA_ERROR_INVALID_CONTEXT);
    ok!(cuCtxDetach(context.0));
    ok!(cuCtxSynchronize());
    ok!(cuCtxDetach(context.0));
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(cu!(cuCtxGetExecAffinity(null_mut(), 0)), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
}

#[test]
fn events_of_a_stream_that_was_waited_for_are_done() {
    let context = context();
    let (move_word, memory) = (function(module(MOVE), "move"), alloc(64));
    for flags in [0, 1, 2] {
        let (stream, own, others) = (stream(1), event(flags), event(flags));
        let turns = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ok!(cuCtxSetCurrent(context.0));
                for _ in 0..1000 {
                    turns.wait();
                    ok!(cuEventRecord(others, stream));
                    turns.wait();
                    // Both threads look, as either may be the one that does the stream's work.
                    ok!(cuStreamSynchronize(stream));
                    ok!(cuEventQuery(others));
                    ok!(cuEventQuery(own));
                    turns.wait();
                }
            });
            for i in 0..1000 {
                if i % 2 == 0 {
                    assert_eq!(launch(move_word, 1, 1, stream, &[memory, memory + 4]), CUDA_SUCCESS);
                } else {
                    ok!(cuMemsetD8Async(memory, 1, 64, stream));
                }
                ok!(cuEventRecord(own, stream));
                turns.wait();
                turns.wait();
                if i % 3 == 0 {
                    ok!(cuCtxSynchronize());
                } else {
                    ok!(cuStreamSynchronize(stream));
                }
                ok!(cuEventQuery(own));
                ok!(cuEventQuery(others));
                turns.wait();
            }
        });
        ok!(cuStreamQuery(stream));
    }
    drop(context);
}

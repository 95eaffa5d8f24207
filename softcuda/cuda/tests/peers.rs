//! Two devices: whose kernels reach whose memory.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::process::Stdio;

const TWO: &[(&str, &str)] = &[("SOFTCUDA_DEVICES", "2"), ("SOFTCUDA_MEMORY", "256M")];

fn context_on(device: i32) -> H {
    let mut context = 0;
    ok!(cuCtxCreate_v2(&mut context, 0, device));
    context
}

#[test]
fn a_kernel_reaches_another_devices_memory_only_with_peer_access() {
    const NAME: &str = "a_kernel_reaches_another_devices_memory_only_with_peer_access";
    in_child(NAME, TWO, Stdio::null(), || {
        let first = context_on(0);
        let there = alloc(4096);
        ok!(cuMemsetD32_v2(there, 77, 1024));
        let second = context_on(1);
        let here = alloc(4096);
        ok!(cuCtxSynchronize());
        assert_eq!(move_on(1, here, there), CUDA_ERROR_ILLEGAL_ADDRESS);
        ok!(cuMemcpyPeer(here, second, there, first, 8));
        ok!(cuCtxSynchronize());
        assert_eq!(read(here, 8), [77, 0, 0, 0, 77, 0, 0, 0], "copies need no peer access");

        assert_eq!(cu!(cuCtxDisablePeerAccess(first)), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        assert_eq!(cu!(cuCtxEnablePeerAccess(second, 0)), CUDA_ERROR_INVALID_CONTEXT, "itself");
        assert_eq!(cu!(cuCtxEnablePeerAccess(0x77, 0)), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cu!(cuCtxEnablePeerAccess(first, 1)), CUDA_ERROR_INVALID_VALUE);
        ok!(cuCtxEnablePeerAccess(first, 0));
        assert_eq!(cu!(cuCtxEnablePeerAccess(first, 0)), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        let mover = function(module(MOVE), "move");
        let moved = |to, from| {
            assert_eq!(launch(mover, 1, 1, 0, &[to, from]), CUDA_SUCCESS);
            cu!(cuCtxSynchronize())
        };
        assert_eq!(moved(here + 64, there), CUDA_SUCCESS);
        assert_eq!(moved(there + 64, here), CUDA_SUCCESS);
        assert_eq!(move_on(0, there, here), CUDA_ERROR_ILLEGAL_ADDRESS, "one way only");
        assert_eq!(move_on(1, here, there), CUDA_ERROR_ILLEGAL_ADDRESS, "another context of the device");
        ok!(cuCtxSetCurrent(first));
        let later = alloc(1 << 20);
        ok!(cuCtxSetCurrent(second));
        assert_eq!(moved(later, here), CUDA_SUCCESS, "memory that came later");
        let own = alloc(1 << 20);
        assert_eq!(moved(own, later), CUDA_SUCCESS, "also of its own");
        ok!(cuMemFree_v2(own));
        // A context there that is asked for as well keeps the device open.
        let third = context_on(0);
        ok!(cuCtxSetCurrent(second));
        ok!(cuCtxEnablePeerAccess(third, 0));
        ok!(cuCtxDisablePeerAccess(first));
        assert_eq!(moved(here, there), CUDA_SUCCESS);
        ok!(cuCtxDestroy_v2(third));
        ok!(cuCtxSetCurrent(second));
        assert_eq!(moved(here, there), CUDA_ERROR_ILLEGAL_ADDRESS, "no pair is left");
    });
}

#[test]
fn managed_memory_is_open_to_all_devices_and_stays_so() {
    const NAME: &str = "managed_memory_is_open_to_all_devices_and_stays_so";
    in_child(NAME, TWO, Stdio::null(), || {
        let first = context_on(0);
        let mut managed = 0;
        ok!(cuMemAllocManaged(&mut managed, 1 << 20, 1));
        assert_eq!(move_on(1, managed, managed + 4), CUDA_SUCCESS);
        let second = context_on(1);
        ok!(cuCtxEnablePeerAccess(first, 0));
        ok!(cuCtxDisablePeerAccess(first));
        assert_eq!(move_on(1, managed, managed + 4), CUDA_SUCCESS);
        ok!(cuMemFree_v2(managed));
        assert_eq!(move_on(1, managed, managed + 4), CUDA_ERROR_ILLEGAL_ADDRESS);
        ok!(cuCtxDestroy_v2(second));
    });
}

#[test]
fn what_is_told() {
    in_child("what_is_told", TWO, Stdio::null(), || {
        api();
        let mut value = 9;
        ok!(cuDeviceCanAccessPeer(&mut value, 0, 1));
        assert_eq!(value, 1);
        ok!(cuDeviceCanAccessPeer(&mut value, 1, 1));
        assert_eq!(value, 0);
        assert_eq!(cu!(cuDeviceCanAccessPeer(&mut value, 0, 2)), CUDA_ERROR_INVALID_DEVICE);
        ok!(cuDeviceGetP2PAttribute(&mut value, 2, 0, 1));
        assert_eq!(value, 1);
        assert_eq!(cu!(cuDeviceGetP2PAttribute(&mut value, 2, 0, 0)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuDeviceGetP2PAttribute(&mut value, 9, 0, 1)), CUDA_ERROR_INVALID_VALUE);
    });
}

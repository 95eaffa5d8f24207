//! Stream-ordered pools: what they keep, give back, and let others reach. Each test in a process of its own, for the
//! numbers are the device's.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::process::Stdio;

const MIB: usize = 1 << 20;
const ENVIRONMENT: &[(&str, &str)] = &[("SOFTCUDA_DEVICES", "2"), ("SOFTCUDA_MEMORY", "64M")];

fn properties(most: usize) -> PoolProperties {
    PoolProperties { kind: 1, handles: 0, location: on_device(0), security: 0, most, rest: [0; 7] }
}

fn create(most: usize) -> H {
    let mut pool = 0;
    ok!(cuMemPoolCreate(&mut pool, &properties(most)));
    pool
}

fn take(pool: H, bytes: usize, stream: H) -> u64 {
    let mut address = 0;
    ok!(cuMemAllocFromPoolAsync(&mut address, bytes, pool, stream));
    address
}

fn attribute(pool: H, id: u32) -> u64 {
    let mut value = 0u64;
    ok!(cuMemPoolGetAttribute(pool, id, (&raw mut value).cast()));
    value
}

fn set(pool: H, id: u32, mut value: u64) -> CUresult {
    cu!(cuMemPoolSetAttribute(pool, id, (&raw mut value).cast()))
}

/// Reserved and used bytes, each with its high-water mark.
fn numbers(pool: H) -> [u64; 4] {
    [5, 6, 7, 8].map(|id| attribute(pool, id))
}

fn free_bytes() -> usize {
    let mut free = 0;
    ok!(cuMemGetInfo_v2(&mut free, &mut 0));
    free
}

#[test]
fn a_threshold_keeps_memory_and_a_trim_gives_it_back() {
    const NAME: &str = "a_threshold_keeps_memory_and_a_trim_gives_it_back";
    in_child(NAME, ENVIRONMENT, Stdio::null(), || {
        let _context = context();
        let (pool, stream, one) = (create(0), stream(0), MIB as u64);
        let first = take(pool, MIB, stream);
        assert_eq!(numbers(pool), [one; 4]);
        ok!(cuMemFreeAsync(first, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(numbers(pool), [0, one, 0, one], "without a threshold nothing is kept");

        assert_eq!(set(pool, 4, u64::MAX), CUDA_SUCCESS);
        let first = take(pool, MIB, stream);
        ok!(cuMemFreeAsync(first, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(numbers(pool), [one, one, 0, one]);
        assert_eq!(free_bytes(), 63 * MIB);
        assert_eq!(take(pool, MIB, stream), first, "the same block");
        assert_eq!(cu!(cuMemFreeAsync(first + 1, stream)), CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemFreeAsync(first, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(set(pool, 8, 0), CUDA_SUCCESS);
        assert_eq!((attribute(pool, 7), attribute(pool, 8)), (0, 0));
        assert_eq!(set(pool, 8, 5), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(set(pool, 5, 0), CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemPoolTrimTo(pool, MIB));
        assert_eq!(attribute(pool, 5), one);
        ok!(cuMemPoolTrimTo(pool, 0));
        assert_eq!(attribute(pool, 5), 0);
        assert_eq!(free_bytes(), 64 * MIB);
    });
}

#[test]
fn what_a_pool_keeps_is_there_for_everybody_in_need() {
    const NAME: &str = "what_a_pool_keeps_is_there_for_everybody_in_need";
    in_child(NAME, ENVIRONMENT, Stdio::null(), || {
        let _context = context();
        let (pool, stream) = (create(0), stream(0));
        assert_eq!(set(pool, 4, u64::MAX), CUDA_SUCCESS);
        let kept = take(pool, 60 * MIB, stream);
        ok!(cuMemFreeAsync(kept, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(free_bytes(), 4 * MIB);
        let plain = alloc(60 * MIB);
        assert_eq!(attribute(pool, 5), 0);
        let mut none = 0;
        assert_eq!(cu!(cuMemAllocFromPoolAsync(&mut none, 5 * MIB, pool, stream)), CUDA_ERROR_OUT_OF_MEMORY);
        ok!(cuMemFree_v2(plain));
        let limited = create(2 * MIB);
        let held = take(limited, MIB, stream);
        let code = cu!(cuMemAllocFromPoolAsync(&mut none, MIB + 1, limited, stream));
        assert_eq!(code, CUDA_ERROR_OUT_OF_MEMORY, "more than the pool may have");
        ok!(cuMemPoolDestroy(limited));
        ok!(cuMemFreeAsync(held, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(free_bytes(), 64 * MIB, "memory outlives its pool, and is given back");
        assert_eq!(cu!(cuMemPoolDestroy(limited)), CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn the_current_pool_and_access() {
    in_child("the_current_pool_and_access", ENVIRONMENT, Stdio::null(), || {
        let _context = context();
        let (pool, stream) = (create(0), stream(0));
        let (mut default, mut current) = (0, 0);
        ok!(cuDeviceGetDefaultMemPool(&mut default, 0));
        assert_eq!(cu!(cuMemPoolDestroy(default)), CUDA_ERROR_INVALID_VALUE);
        ok!(cuDeviceSetMemPool(0, pool));
        assert_eq!(cu!(cuDeviceSetMemPool(1, pool)), CUDA_ERROR_INVALID_VALUE, "of another device");
        let mut memory = 0;
        ok!(cuMemAllocAsync(&mut memory, 4096, stream));
        assert_eq!(attribute(pool, 7), 4096);

        let description = |device, flags| Description { location: on_device(device), flags };
        let access = |device| {
            let mut flags = 9;
            ok!(cuMemPoolGetAccess(&mut flags, pool, &on_device(device)));
            flags
        };
        assert_eq!((access(0), access(1)), (3, 0));
        assert_eq!(move_on(1, memory, memory), CUDA_ERROR_ILLEGAL_ADDRESS);
        ok!(cuMemPoolSetAccess(pool, &description(1, 3), 1));
        assert_eq!(access(1), 3);
        assert_eq!(move_on(1, memory, memory + 4), CUDA_SUCCESS);
        let later = take(pool, 1 << 20, stream);
        assert_eq!(move_on(1, later, memory), CUDA_SUCCESS);
        ok!(cuMemPoolSetAccess(pool, &description(1, 0), 1));
        assert_eq!(move_on(1, later, memory), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(
            cu!(cuMemPoolSetAccess(pool, &description(0, 0), 1)),
            CUDA_ERROR_INVALID_VALUE,
            "its own device"
        );

        ok!(cuMemPoolDestroy(pool));
        ok!(cuDeviceGetMemPool(&mut current, 0));
        assert_eq!(current, default, "a destroyed pool is no longer the current one");
        let mut none = 0;
        let bad = PoolProperties { handles: 2, ..properties(0) };
        assert_eq!(cu!(cuMemPoolCreate(&mut none, &bad)), CUDA_ERROR_NOT_SUPPORTED);
    });
}

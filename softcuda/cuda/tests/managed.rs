//! Managed memory: shared by host and kernels, with advice, prefetches and what is told of them.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;

const CPU: i32 = -1;
const NOWHERE: i32 = -2;

fn managed(bytes: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemAllocManaged(&mut address, bytes, 1));
    address
}

fn attribute(id: u32, address: u64, bytes: usize) -> i32 {
    let mut value = 99;
    ok!(cuMemRangeGetAttribute((&raw mut value).cast(), 4, id, address, bytes));
    value
}

#[test]
fn host_and_kernels_share_the_pages() {
    let _context = context();
    let memory = managed(4096);
    let words = memory as *mut u32;
    unsafe { words.add(1).write_volatile(77) };
    assert_eq!(move_on(0, memory, memory + 4), CUDA_SUCCESS);
    assert_eq!(unsafe { words.read_volatile() }, 77);
    ok!(cuMemFree_v2(memory));

    let text = ".version 8.0 .target sm_80 .address_size 64
.visible .global .attribute(.managed) .align 4 .u32 shared_word = 5;
.visible .entry bump() { .reg .b32 %v; ld.global.u32 %v, [shared_word]; add.u32 %v, %v, 1; st.global.u32 [shared_word], %v; ret; }";
    let module = module(text);
    let (mut address, mut bytes) = (0, 0);
    ok!(cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"shared_word".as_ptr()));
    let word = address as *mut u32;
    assert_eq!(unsafe { word.read_volatile() }, 5);
    unsafe { word.write_volatile(10) };
    assert_eq!(launch(function(module, "bump"), 1, 1, 0, &[]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(unsafe { word.read_volatile() }, 11);
    let mut is_managed = 0u32;
    ok!(cuPointerGetAttribute((&raw mut is_managed).cast(), 8, address));
    assert_eq!(is_managed, 1);
    ok!(cuMemAdvise(address, 4, 1, 0));
}

#[test]
fn advice_is_told_for_whole_ranges_only() {
    let _context = context();
    let memory = managed(64 << 10);
    let half = 32 << 10;
    assert_eq!(attribute(1, memory, 64 << 10), 0);
    ok!(cuMemAdvise(memory, half, 1, 0));
    assert_eq!((attribute(1, memory, half), attribute(1, memory, half + 1)), (1, 0));
    ok!(cuMemAdvise(memory, half, 2, 0));
    assert_eq!(attribute(1, memory, half), 0);

    assert_eq!(attribute(2, memory, half), NOWHERE);
    ok!(cuMemAdvise(memory, 64 << 10, 3, 0));
    ok!(cuMemAdvise_v2(memory, half, 3, Location { kind: 2, id: 0 }));
    assert_eq!((attribute(2, memory, half), attribute(2, memory + half as u64, half)), (CPU, 0));
    assert_eq!(attribute(2, memory, 64 << 10), NOWHERE, "not the same for all");
    assert_eq!((attribute(5, memory, half), attribute(5, memory + half as u64, half)), (2, 1));
    assert_eq!((attribute(6, memory + half as u64, half), attribute(5, memory, 64 << 10)), (0, 0));
    ok!(cuMemAdvise_v2(memory, half, 4, Location { kind: 0, id: 0 }));
    assert_eq!(attribute(2, memory, half), NOWHERE);

    ok!(cuMemAdvise(memory, 64 << 10, 5, CPU));
    ok!(cuMemAdvise(memory, half, 5, 0));
    let by = |bytes| {
        let mut found = [7i32; 3];
        ok!(cuMemRangeGetAttribute(found.as_mut_ptr().cast(), 12, 3, memory, bytes));
        found.sort_unstable();
        found
    };
    assert_eq!(by(half), [NOWHERE, CPU, 0]);
    assert_eq!(by(64 << 10), [NOWHERE, NOWHERE, CPU]);
    ok!(cuMemAdvise(memory, half, 6, CPU));
    assert_eq!(by(half), [NOWHERE, NOWHERE, 0]);
    ok!(cuMemFree_v2(memory));
}

#[test]
fn prefetches_are_noted_in_stream_order() {
    let _context = context();
    let memory = managed(8192);
    let stream = stream(0);
    assert_eq!(attribute(4, memory, 8192), NOWHERE);
    ok!(cuMemPrefetchAsync(memory, 8192, 0, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!((attribute(4, memory, 8192), attribute(7, memory, 10), attribute(8, memory, 10)), (0, 1, 0));
    ok!(cuMemPrefetchAsync_v2(memory, 4096, Location { kind: 3, id: 0 }, 0, stream));
    ok!(cuStreamSynchronize(stream));
    let (mut last, mut kind) = (5i32, 5i32);
    let mut places = [(&raw mut last).cast::<c_void>(), (&raw mut kind).cast()];
    ok!(cuMemRangeGetAttributes(
        places.as_mut_ptr(),
        [4, 4].as_mut_ptr(),
        [4, 7].as_mut_ptr(),
        2,
        memory,
        4096
    ));
    assert_eq!((last, kind), (CPU, 3));
}

#[test]
fn batches_of_prefetches_go_where_each_part_of_them_says() {
    let _context = context();
    let (memory, stream) = (managed(16384), stream(0));
    let mut addresses = [memory, memory + 4096, memory + 8192];
    let mut sizes = [4096; 3];
    let mut places = [on_device(0), Location { kind: 2, id: 0 }];
    let batch = |addresses: &mut [u64; 3],
                 sizes: &mut [usize; 3],
                 places: &mut [Location; 2],
                 second: usize,
                 stream| {
        let mut firsts = [0, second];
        let (addresses, sizes) = (addresses.as_mut_ptr(), sizes.as_mut_ptr());
        cu!(cuMemPrefetchBatchAsync(
            addresses,
            sizes,
            3,
            places.as_mut_ptr(),
            firsts.as_mut_ptr(),
            2,
            0,
            stream
        ))
    };
    assert_eq!(batch(&mut addresses, &mut sizes, &mut places, 2, stream), CUDA_SUCCESS);
    ok!(cuMemDiscardBatchAsync(addresses.as_mut_ptr(), sizes.as_mut_ptr(), 1, 0, stream));
    ok!(cuStreamSynchronize(stream));
    let last = [0, 4096, 8192, 12288].map(|offset| attribute(4, memory + offset, 4096));
    assert_eq!(last, [0, 0, CPU, NOWHERE]);
    assert_eq!(batch(&mut addresses, &mut sizes, &mut places, 3, stream), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(batch(&mut addresses, &mut sizes, &mut places, 0, stream), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        batch(&mut addresses, &mut sizes, &mut places, 1, 0),
        CUDA_ERROR_INVALID_VALUE,
        "the legacy stream"
    );
    sizes[2] = 1 << 20;
    assert_eq!(batch(&mut addresses, &mut sizes, &mut places, 1, stream), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn errors_are_those_of_the_manual() {
    let _context = context();
    let (memory, plain, stream) = (managed(8192), alloc(8192), stream(0));
    for (advice, device, code) in [
        (0, 0, CUDA_ERROR_INVALID_VALUE),
        (9, 0, CUDA_ERROR_INVALID_VALUE),
        (3, 99, CUDA_ERROR_INVALID_DEVICE),
        (1, 99, CUDA_SUCCESS),
    ] {
        assert_eq!(cu!(cuMemAdvise(memory, 8192, advice, device)), code, "advice {advice} for {device}");
    }
    assert_eq!(cu!(cuMemAdvise(memory, 8193, 1, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemAdvise(plain, 8192, 1, 0)), CUDA_ERROR_INVALID_VALUE, "not managed");
    assert_eq!(cu!(cuMemAdvise_v2(memory, 1, 5, Location { kind: 3, id: 0 })), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemPrefetchAsync(plain, 8192, 0, stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemPrefetchAsync(memory, 8192, 5, stream)), CUDA_ERROR_INVALID_DEVICE);
    let mut value = 0u64;
    let out = (&raw mut value).cast::<c_void>();
    assert_eq!(
        cu!(cuMemRangeGetAttribute(out, 8, 1, memory, 1)),
        CUDA_ERROR_INVALID_VALUE,
        "one number only"
    );
    assert_eq!(cu!(cuMemRangeGetAttribute(out, 3, 3, memory, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemRangeGetAttribute(out, 4, 99, memory, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemRangeGetAttribute(out, 4, 1, plain, 1)), CUDA_ERROR_INVALID_VALUE);

    ok!(cuStreamAttachMemAsync(stream, memory, 0, 4));
    ok!(cuStreamAttachMemAsync(stream, memory, 8192, 1));
    for (stream, address, bytes, flags) in
        [(stream, memory, 100, 4), (stream, plain, 0, 4), (stream, memory, 0, 3), (0, memory, 0, 4)]
    {
        let code = cu!(cuStreamAttachMemAsync(stream, address, bytes, flags));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{bytes} bytes, flags {flags}");
    }
}

//! Arrays, the objects made of them, and copies of every shape to and from them: values, errors, and what is given back.
//! What kernels read through textures is the case `textures`.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;

const FLOAT: u32 = 32;
const BYTE: u32 = 1;

fn array(deep: Deep) -> H {
    let mut array = 0;
    ok!(cuArray3DCreate_v2(&mut array, &deep));
    array
}

#[test]
fn descriptions_are_checked_and_told_again() {
    let _context = context();
    let good = Deep { width: 8, height: 4, depth: 0, format: FLOAT, channels: 2, flags: 2 };
    let made = array(good);
    let (mut deep, mut flat) = (Deep::default(), Flat::default());
    ok!(cuArray3DGetDescriptor_v2(&mut deep, made));
    assert_eq!(deep, good);
    ok!(cuArrayGetDescriptor_v2(&mut flat, made));
    assert_eq!(flat, Flat { width: 8, height: 4, format: FLOAT, channels: 2 });
    ok!(cuArrayDestroy(made));
    assert_eq!(cu!(cuArrayDestroy(made)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cu!(cuArrayGetDescriptor_v2(&mut flat, made)), CUDA_ERROR_INVALID_HANDLE);
    let mut none = 0;
    for (bad, code) in [
        (Deep { width: 0, ..good }, CUDA_ERROR_INVALID_VALUE),
        (Deep { channels: 3, ..good }, CUDA_ERROR_INVALID_VALUE),
        (Deep { format: 7, ..good }, CUDA_ERROR_INVALID_VALUE),
        (Deep { height: 0, depth: 3, ..good }, CUDA_ERROR_INVALID_VALUE),
        (Deep { flags: 4, ..good }, CUDA_ERROR_INVALID_VALUE),
        (Deep { flags: 1, ..good }, CUDA_ERROR_INVALID_VALUE),
        (Deep { width: 4, depth: 7, flags: 5, ..good }, CUDA_ERROR_INVALID_VALUE),
        (Deep { flags: 0x40, ..good }, CUDA_ERROR_NOT_SUPPORTED),
        (Deep { flags: 1 << 20, ..good }, CUDA_ERROR_INVALID_VALUE),
        (Deep { width: 100_000, height: 100_000, depth: 100_000, ..good }, CUDA_ERROR_OUT_OF_MEMORY),
    ] {
        assert_eq!(cu!(cuArray3DCreate_v2(&mut none, &bad)), code, "{bad:?}");
    }
    ok!(cuArrayCreate_v2(&mut none, &Flat { width: 5, height: 0, format: BYTE, channels: 1 }));
    ok!(cuArrayDestroy(none));
}

#[test]
fn rows_go_in_and_out() {
    let _context = context();
    let (first, second) = (
        array(Deep { width: 64, format: BYTE, channels: 1, ..Deep::default() }),
        array(Deep { width: 16, format: FLOAT, channels: 1, ..Deep::default() }),
    );
    let bytes: Vec<u8> = (0..64).collect();
    ok!(cuMemcpyHtoA_v2(first, 0, bytes.as_ptr().cast(), 64));
    ok!(cuMemcpyAtoA_v2(second, 4, first, 10, 20));
    let memory = alloc(64);
    ok!(cuMemcpyAtoD_v2(memory, second, 4, 20));
    assert_eq!(read(memory, 20), bytes[10..30]);
    ok!(cuMemcpyDtoA_v2(first, 60, memory, 4));
    let mut back = [0u8; 8];
    ok!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), first, 56, 8));
    assert_eq!(back, [56, 57, 58, 59, 10, 11, 12, 13]);
    let stream = stream(0);
    ok!(cuMemcpyAtoHAsync_v2(back.as_mut_ptr().cast(), first, 0, 8, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(back, bytes[..8]);
    assert_eq!(
        cu!(cuMemcpyHtoA_v2(first, 60, bytes.as_ptr().cast(), 5)),
        CUDA_ERROR_INVALID_VALUE,
        "too long"
    );
    assert_eq!(cu!(cuMemcpyHtoA_v2(77, 0, bytes.as_ptr().cast(), 5)), CUDA_ERROR_INVALID_VALUE, "no array");
    ok!(cuArrayDestroy(first));
    ok!(cuArrayDestroy(second));
}

#[test]
fn levels_belong_to_their_mipmapped_array() {
    let _context = context();
    let mut mipmapped = 0;
    let deep = Deep { width: 8, height: 8, format: FLOAT, channels: 1, ..Deep::default() };
    ok!(cuMipmappedArrayCreate(&mut mipmapped, &deep, 99));
    let (mut level, mut again) = (0, 0);
    ok!(cuMipmappedArrayGetLevel(&mut level, mipmapped, 3));
    ok!(cuMipmappedArrayGetLevel(&mut again, mipmapped, 3));
    assert_eq!(level, again);
    let mut flat = Flat::default();
    ok!(cuArrayGetDescriptor_v2(&mut flat, level));
    assert_eq!((flat.width, flat.height), (1, 1));
    assert_eq!(cu!(cuMipmappedArrayGetLevel(&mut again, mipmapped, 4)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuArrayDestroy(level)), CUDA_ERROR_INVALID_HANDLE);
    ok!(cuMipmappedArrayDestroy(mipmapped));
    assert_eq!(cu!(cuArrayGetDescriptor_v2(&mut flat, level)), CUDA_ERROR_INVALID_HANDLE);
}

/// Texture descriptor: address modes, filter, flags, and zeros.
fn described(filter: u32, flags: u32) -> [u32; 26] {
    let mut words = [0; 26];
    (words[3], words[4]) = (filter, flags);
    words
}

#[test]
fn objects_are_checked() {
    let _context = context();
    let plain = array(Deep { width: 8, height: 8, format: BYTE, channels: 1, ..Deep::default() });
    let resource = |array: H| Resource {
        words: std::array::from_fn(|i| if i == 0 { array as u64 } else { 0 }),
        ..Resource::default()
    };
    let mut object = 0;
    ok!(cuTexObjectCreate(&mut object, &resource(plain), &described(0, 1), std::ptr::null()));
    assert_eq!(cu!(cuSurfObjectDestroy(object)), CUDA_ERROR_INVALID_VALUE, "it is a texture");
    ok!(cuTexObjectDestroy(object));
    assert_eq!(cu!(cuTexObjectDestroy(object)), CUDA_ERROR_INVALID_VALUE);
    let create = |resource: Resource, described: [u32; 26]| {
        let mut object = 0;
        cu!(cuTexObjectCreate(&mut object, &resource, &described, std::ptr::null()))
    };
    assert_eq!(
        create(resource(plain), described(1, 1)),
        CUDA_ERROR_INVALID_VALUE,
        "integers cannot be filtered"
    );
    assert_eq!(create(resource(plain), described(1, 0)), CUDA_SUCCESS, "fractions can");
    assert_eq!(create(resource(plain), described(2, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(create(resource(plain), described(0, 1 << 9)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(create(resource(0x1234), described(0, 1)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(create(Resource { kind: 9, ..resource(plain) }, described(0, 1)), CUDA_ERROR_INVALID_VALUE);
    let memory = alloc(4096);
    let linear = |address, bytes| {
        let mut r = Resource { kind: 2, ..Resource::default() };
        (r.words[0], r.words[1], r.words[2]) = (address, 32 | 1 << 32, bytes);
        r
    };
    assert_eq!(create(linear(memory, 4096), described(0, 0)), CUDA_SUCCESS);
    assert_eq!(create(linear(memory + 4, 64), described(0, 0)), CUDA_ERROR_INVALID_VALUE, "not aligned");
    assert_eq!(create(linear(memory, 4100), described(0, 0)), CUDA_ERROR_INVALID_VALUE, "more than there is");
    assert_eq!(
        cu!(cuSurfObjectCreate(&mut object, &resource(plain))),
        CUDA_ERROR_INVALID_VALUE,
        "made without the flag"
    );
}

#[test]
fn a_context_takes_its_arrays_along_and_a_texture_without_memory_is_a_fault() {
    let outside = context();
    let used = || {
        let (mut free, mut total) = (0, 0);
        ok!(cuMemGetInfo_v2(&mut free, &mut total));
        total - free
    };
    // Others of this file use the same device meanwhile: this array is larger than all of theirs.
    const LARGE: usize = 256 << 20;
    let deep = Deep { width: 1 << 16, height: 1 << 12, format: BYTE, channels: 1, ..Deep::default() };
    let inside = context();
    let array = array(deep);
    assert!(used() >= LARGE);
    drop(inside);
    ok!(cuCtxSetCurrent(outside.0));
    assert!(used() < LARGE);
    assert_eq!(cu!(cuArrayDestroy(array)), CUDA_ERROR_INVALID_HANDLE);

    let memory = alloc(1 << 20);
    let mut resource = Resource { kind: 2, ..Resource::default() };
    (resource.words[0], resource.words[1], resource.words[2]) = (memory, 32 | 1 << 32, 1 << 20);
    let mut object = 0;
    ok!(cuTexObjectCreate(&mut object, &resource, &described(0, 0), std::ptr::null()));
    let text = ".version 8.0 .target sm_80 .address_size 64
.visible .entry fetch(.param .u64 out, .param .u64 object) { .reg .b64 %a; .reg .b64 %t; .reg .f32 %f<5>; .reg .b32 %r;
ld.param.u64 %a, [out]; ld.param.u64 %t, [object]; mov.u32 %r, 5; tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%t, {%r}];
st.global.f32 [%a], %f1; ret; }";
    let fetch = function(module(text), "fetch");
    let out = alloc(4);
    ok!(cuMemsetD32_v2(memory + 20, 1.5f32.to_bits(), 1));
    assert_eq!(launch(fetch, 1, 1, 0, &[out, object]), CUDA_SUCCESS);
    assert_eq!(read(out, 4), 1.5f32.to_le_bytes());
    ok!(cuMemFree_v2(memory));
    assert_eq!(launch(fetch, 1, 1, 0, &[out, object]), CUDA_SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn batches() {
    let _context = context();
    let memory = alloc(64);
    ok!(cuMemsetD8_v2(memory, 0, 64));
    let host: Vec<u8> = (1..=64).collect();
    let from = host.as_ptr().expose_provenance() as u64;
    let stream = stream(0);
    let order = |order| Order { order, places: [Location { kind: 0, id: 0 }; 2], flags: 0 };
    let mut orders = [order(1), order(2)];
    let (mut to, mut sources, mut sizes) =
        ([memory, memory + 32, memory + 60], [from, from + 10, memory], [4, 2, 4]);
    let batch = |to: &mut [u64; 3],
                 sources: &mut [u64; 3],
                 sizes: &mut [usize; 3],
                 orders: &mut [Order; 2],
                 firsts: &mut [usize; 2],
                 stream| {
        cu!(cuMemcpyBatchAsync_v2(
            to.as_mut_ptr(),
            sources.as_mut_ptr(),
            sizes.as_mut_ptr(),
            3,
            orders.as_mut_ptr(),
            firsts.as_mut_ptr(),
            2,
            stream
        ))
    };
    assert_eq!(batch(&mut to, &mut sources, &mut sizes, &mut orders, &mut [0, 2], stream), CUDA_SUCCESS);
    ok!(cuStreamSynchronize(stream));
    let got = read(memory, 64);
    assert_eq!(
        (&got[..5], &got[32..35], &got[60..]),
        (&[1, 2, 3, 4, 0][..], &[11, 12, 0][..], &[1, 2, 3, 4][..])
    );
    for (firsts, stream) in [([1, 2], stream), ([0, 3], stream), ([0, 0], stream), ([0, 2], 0)] {
        let code = batch(&mut to, &mut sources, &mut sizes, &mut orders, &mut firsts.clone(), stream);
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{firsts:?}");
    }
    orders[1].order = 0;
    assert_eq!(
        batch(&mut to, &mut sources, &mut sizes, &mut orders, &mut [0, 2], stream),
        CUDA_ERROR_INVALID_VALUE
    );

    // A box from memory to an array and another back: kind, pointer, texels a row, rows a plane; or kind, array, offset.
    let array = array(Deep { width: 4, height: 4, format: FLOAT, channels: 1, ..Deep::default() });
    ok!(cuMemcpyHtoD_v2(memory, host.as_ptr().cast(), 64));
    let none = 0usize;
    let there = [1, memory as usize, 4, 4, none, 2, array, 1, 0, none, 3, 2, 1, 1];
    let back = [2, array, 1, 1, none, 1, memory as usize, 0, 0, none, 3, 1, 1, 1];
    let mut operations = [there, back];
    ok!(cuMemcpy3DBatchAsync_v2(2, operations.as_mut_ptr().cast::<c_void>(), 0, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(read(memory, 13), [17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 13]);

    // One copy with attributes; the legacy stream takes it as well.
    orders[1].order = 2;
    ok!(cuMemcpyWithAttributesAsync(memory + 40, from + 1, 3, &mut orders[1], 0));
    ok!(cuMemcpy3DWithAttributesAsync(operations[1..].as_mut_ptr().cast::<c_void>(), 0, stream));
    ok!(cuCtxSynchronize());
    assert_eq!((read(memory + 40, 3), read(memory, 3)), (vec![2, 3, 4], vec![17, 18, 19]));
    orders[1].order = 9;
    let wrong = cu!(cuMemcpyWithAttributesAsync(memory, from, 3, &mut orders[1], 0));
    assert_eq!(wrong, CUDA_ERROR_INVALID_VALUE);
    ok!(cuArrayDestroy(array));
}

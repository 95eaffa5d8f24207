//! Texture and surface references: what their calls keep and tell, what kernels read and write through them, and which
//! binding a launch takes. Values by the driver API's manual ("Texture Reference Management") and by "Texture Fetching" of the
//! programming guide.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

const FLOAT: u32 = 0x20;
const BYTE: u32 = 1;
const OVERRIDE: u32 = 1;
const AS_INTEGER: u32 = 1;
const NORMALIZED: u32 = 2;

/// One kernel for each way to read: `line` by an integer, `at` by a float, `plane` by two floats, `level` by two floats and a
/// level, all from `t`; `put` adds 1 to a word of the surface `s`. Parameters: where the result goes, and what is asked for.
const PTX: &str = ".version 8.0 .target sm_75 .address_size 64
.global .texref t; .global .texref other = { normalized_coords = 1, filter_mode = linear, addr_mode_0 = wrap }; .global .surfref s;
.visible .entry line(.param .u64 o, .param .u64 i) { .reg .b64 %o; .reg .b32 %x, %v<4>;
ld.param.u64 %o, [o]; ld.param.u32 %x, [i]; tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [t, {%x}]; st.global.v4.b32 [%o], {%v0, %v1, %v2, %v3}; ret; }
.visible .entry at(.param .u64 o, .param .u64 i) { .reg .b64 %o; .reg .f32 %x, %v<4>;
ld.param.u64 %o, [o]; ld.param.f32 %x, [i]; tex.1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [t, {%x}]; st.global.v4.f32 [%o], {%v0, %v1, %v2, %v3}; ret; }
.visible .entry plane(.param .u64 o, .param .u64 i) { .reg .b64 %o; .reg .f32 %x, %y, %v<4>;
ld.param.u64 %o, [o]; ld.param.f32 %x, [i]; ld.param.f32 %y, [i+4]; tex.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [t, {%x, %y}]; st.global.v4.f32 [%o], {%v0, %v1, %v2, %v3}; ret; }
.visible .entry level(.param .u64 o, .param .u64 i) { .reg .b64 %o; .reg .f32 %c, %l, %v<4>;
ld.param.u64 %o, [o]; ld.param.f32 %l, [i]; mov.f32 %c, 0f3F000000; tex.level.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [t, {%c, %c}], %l; st.global.f32 [%o], %v0; ret; }
.visible .entry put(.param .u64 o, .param .u64 i) { .reg .b32 %x, %v;
ld.param.u32 %x, [i]; suld.b.1d.b32.trap %v, [s, {%x}]; add.u32 %v, %v, 1; sust.b.1d.b32.trap [s, {%x}], %v; ret; }";

fn texture(module: H, name: &CStr) -> H {
    let mut reference = 0;
    ok!(cuModuleGetTexRef(&mut reference, module, name.as_ptr()));
    reference
}

fn line_of<T: Copy>(texels: &[T], format: u32, channels: u32, flags: u32) -> H {
    let mut array = 0;
    let width =
        size_of_val(texels) / size_of::<T>() / if size_of::<T>() == 1 { channels as usize } else { 1 };
    ok!(cuArray3DCreate_v2(&mut array, &Deep { width, format, channels, flags, ..Deep::default() }));
    ok!(cuMemcpyHtoA_v2(array, 0, texels.as_ptr().cast(), size_of_val(texels)));
    array
}

fn memory_of(words: &[u32]) -> u64 {
    let memory = alloc(4 * words.len());
    ok!(cuMemcpyHtoD_v2(memory, words.as_ptr().cast(), 4 * words.len()));
    memory
}

/// What a kernel of [`PTX`] stores.
fn ask(module: H, kernel: &str, what: u64) -> [u32; 4] {
    let to = memory_of(&[0xdead_beef; 4]);
    assert_eq!(launch(function(module, kernel), 1, 1, 0, &[to, what]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    let bytes = read(to, 16);
    std::array::from_fn(|i| u32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap()))
}

fn bits(x: f32) -> u64 {
    x.to_bits().into()
}

fn floats(words: [u32; 4]) -> [f32; 4] {
    words.map(f32::from_bits)
}

#[test]
fn what_is_set_is_told() {
    let _context = context();
    let mut reference = 0;
    ok!(cuTexRefCreate(&mut reference));
    let (mut number, mut mode, mut a, mut b) = (0i32, 0u32, 0f32, 0f32);
    // As made: nothing is bound, nothing normalised, no filter.
    let (mut address, mut array) = (0, 0);
    assert_eq!(cu!(cuTexRefGetAddress_v2(&mut address, reference)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuTexRefGetArray(&mut array, reference)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuTexRefGetMipmappedArray(&mut array, reference)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuTexRefGetFlags(&mut mode, reference));
    assert_eq!(mode, 0);
    ok!(cuTexRefGetFilterMode(&mut mode, reference));
    assert_eq!(mode, 0);
    for axis in 0..3 {
        ok!(cuTexRefSetAddressMode(reference, axis, 3 - axis as u32));
        ok!(cuTexRefGetAddressMode(&mut mode, reference, axis));
        assert_eq!(mode, 3 - axis as u32);
    }
    ok!(cuTexRefSetFilterMode(reference, 1));
    ok!(cuTexRefGetFilterMode(&mut mode, reference));
    assert_eq!(mode, 1);
    ok!(cuTexRefSetMipmapFilterMode(reference, 1));
    ok!(cuTexRefGetMipmapFilterMode(&mut mode, reference));
    assert_eq!(mode, 1);
    ok!(cuTexRefSetMipmapLevelBias(reference, 0.5));
    ok!(cuTexRefGetMipmapLevelBias(&mut a, reference));
    assert_eq!(a, 0.5);
    ok!(cuTexRefSetMipmapLevelClamp(reference, 1.0, 3.5));
    ok!(cuTexRefGetMipmapLevelClamp(&mut a, &mut b, reference));
    assert_eq!((a, b), (1.0, 3.5));
    ok!(cuTexRefSetMaxAnisotropy(reference, 8));
    ok!(cuTexRefGetMaxAnisotropy(&mut number, reference));
    assert_eq!(number, 8);
    let (colour, mut told) = ([1.0f32, 2.0, 3.0, 4.0], [0f32; 4]);
    ok!(cuTexRefSetBorderColor(reference, colour.as_ptr()));
    ok!(cuTexRefGetBorderColor(told.as_mut_ptr(), reference));
    assert_eq!(told, colour);
    // Integers, normalised, no trilinear optimisation.
    ok!(cuTexRefSetFlags(reference, 0x23));
    ok!(cuTexRefGetFlags(&mut mode, reference));
    assert_eq!(mode, 0x23);
    ok!(cuTexRefSetFormat(reference, BYTE, 4));
    ok!(cuTexRefGetFormat(&mut mode, &mut number, reference));
    assert_eq!((mode, number), (BYTE, 4));
    ok!(cuTexRefGetFormat(null_mut(), null_mut(), reference));
    ok!(cuTexRefDestroy(reference));
    assert_eq!(cu!(cuTexRefGetFlags(&mut mode, reference)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuTexRefDestroy(reference)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn wrong_numbers_are_refused() {
    let _context = context();
    let module = module(PTX);
    let t = texture(module, c"t");
    let (mut mode, mut other) = (0, 0);
    for code in [
        cu!(cuTexRefSetAddressMode(t, 3, 1)),
        cu!(cuTexRefSetAddressMode(t, -1, 1)),
        cu!(cuTexRefSetAddressMode(t, 0, 4)),
        cu!(cuTexRefGetAddressMode(&mut mode, t, 3)),
        cu!(cuTexRefSetFilterMode(t, 2)),
        cu!(cuTexRefSetMipmapFilterMode(t, 2)),
        cu!(cuTexRefSetFlags(t, 0x80)),
        cu!(cuTexRefSetFormat(t, 7, 1)),
        cu!(cuTexRefSetFormat(t, FLOAT, 3)),
        cu!(cuTexRefSetFormat(t, FLOAT, -1)),
        cu!(cuTexRefSetBorderColor(t, null())),
        cu!(cuTexRefSetArray(t, 12345, OVERRIDE)),
        cu!(cuTexRefSetMipmappedArray(t, 12345, OVERRIDE)),
        cu!(cuTexRefSetAddress_v2(null_mut(), t, 0x1000, 64)),
        cu!(cuTexRefSetFlags(0, 0)),
        cu!(cuTexRefSetFlags(module, 0)),
        cu!(cuTexRefCreate(null_mut())),
        cu!(cuTexRefGetFlags(null_mut(), t)),
        cu!(cuTexRefDestroy(t)),
        cu!(cuSurfRefSetArray(t, 0, 0)),
        cu!(cuSurfRefGetArray(&mut other, t)),
        cu!(cuParamSetTexRef(function(module, "line"), 0, t)),
        cu!(cuParamSetTexRef(function(module, "line"), -1, 12345)),
        cu!(cuModuleGetTexRef(null_mut(), module, c"t".as_ptr())),
        cu!(cuModuleGetTexRef(&mut other, module, null())),
    ] {
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    }
    for (name, surface) in [(c"none", false), (c"s", false), (c"line", false), (c"t", true), (c"none", true)]
    {
        let code = if surface {
            cu!(cuModuleGetSurfRef(&mut other, module, name.as_ptr()))
        } else {
            cu!(cuModuleGetTexRef(&mut other, module, name.as_ptr()))
        };
        assert_eq!(code, CUDA_ERROR_NOT_FOUND, "{name:?}");
    }
    let (mut address, mut size) = (0, 0);
    assert_eq!(
        cu!(cuModuleGetGlobal_v2(&mut address, &mut size, module, c"t".as_ptr())),
        CUDA_ERROR_NOT_FOUND
    );
    // They go with their module, and with the context.
    ok!(cuModuleUnload(module));
    assert_eq!(cu!(cuTexRefSetFlags(t, 0)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn initial_values_of_the_text() {
    let _context = context();
    let other = texture(module(PTX), c"other");
    let mut words = [0u32; 4];
    ok!(cuTexRefGetFlags(&mut words[0], other));
    ok!(cuTexRefGetFilterMode(&mut words[1], other));
    ok!(cuTexRefGetAddressMode(&mut words[2], other, 0));
    ok!(cuTexRefGetAddressMode(&mut words[3], other, 1));
    assert_eq!(
        words,
        [NORMALIZED, 1, 0, 1],
        "normalised, linear, wrapped, and clamped where nothing is said"
    );
}

#[test]
fn arrays_are_read_as_the_reference_says() {
    let _context = context();
    let module = module(PTX);
    let t = texture(module, c"t");
    let array = line_of(&[10.0f32, 20.0, 30.0, 40.0], FLOAT, 1, 0);
    assert_eq!(cu!(cuTexRefSetArray(t, array, 0)), CUDA_ERROR_INVALID_VALUE, "the flag is a must");
    ok!(cuTexRefSetArray(t, array, OVERRIDE));
    let (mut told, mut format, mut channels) = (0, 0, 0);
    ok!(cuTexRefGetArray(&mut told, t));
    ok!(cuTexRefGetFormat(&mut format, &mut channels, t));
    assert_eq!((told, format, channels), (array, FLOAT, 1));
    ok!(cuParamSetTexRef(function(module, "at"), -1, t));
    let at = |x: f32| floats(ask(module, "at", bits(x)))[0];
    assert_eq!([at(1.5), at(-3.0), at(99.0)], [20.0, 10.0, 40.0], "clamped, in texels");
    ok!(cuTexRefSetFilterMode(t, 1));
    assert_eq!(at(1.0), 15.0);
    ok!(cuTexRefSetFlags(t, NORMALIZED));
    ok!(cuTexRefSetFilterMode(t, 0));
    ok!(cuTexRefSetAddressMode(t, 0, 0));
    assert_eq!([at(0.3), at(1.3), at(-0.1)], [20.0, 20.0, 40.0], "wrapped");
    ok!(cuTexRefSetAddressMode(t, 0, 2));
    assert_eq!([at(1.1), at(-0.3)], [40.0, 20.0], "mirrored");
    ok!(cuTexRefSetAddressMode(t, 0, 3));
    ok!(cuTexRefSetBorderColor(t, [7.0f32, 0.0, 0.0, 0.0].as_ptr()));
    assert_eq!([at(1.1), at(0.9)], [7.0, 40.0], "bordered");
    // Bytes are fractions unless they are to stay integers, of which there is no mean.
    let bytes = line_of(&[0u8, 51, 255, 1], BYTE, 4, 0);
    ok!(cuTexRefSetArray(t, bytes, OVERRIDE));
    ok!(cuTexRefSetFlags(t, 0));
    assert_eq!(floats(ask(module, "at", bits(0.5))), [0.0, 0.2, 1.0, 1.0 / 255.0]);
    ok!(cuTexRefSetFlags(t, AS_INTEGER));
    ok!(cuTexRefSetFilterMode(t, 1));
    assert_eq!(ask(module, "line", 0), [0, 51, 255, 1]);
}

#[test]
fn memory_is_read_from_where_textures_may_begin() {
    let _context = context();
    let module = module(PTX);
    let t = texture(module, c"t");
    let words: Vec<u32> = (0..512).collect();
    let memory = memory_of(&words);
    ok!(cuTexRefSetFormat(t, 3, 1));
    let mut offset = 99;
    ok!(cuTexRefSetAddress_v2(&mut offset, t, memory, 2048));
    assert_eq!(offset, 0, "what cuMemAlloc gives is aligned");
    assert_eq!(ask(module, "line", 300), [300, 0, 0, 1]);
    assert_eq!(ask(module, "line", 512)[0], 0, "outside there is nothing");
    // 100 words on: the texture begins at a multiple of 512 bytes, and the program adds what is told.
    ok!(cuTexRefSetAddress_v2(&mut offset, t, memory + 400, 400));
    assert_eq!(offset, 400);
    assert_eq!(ask(module, "line", offset as u64 / 4 + 7)[0], 107);
    assert_eq!(cu!(cuTexRefSetAddress_v2(null_mut(), t, memory + 400, 400)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuTexRefSetAddress_v2(null_mut(), t, memory + 512, 64));
    assert_eq!(ask(module, "line", 0)[0], 128);
    let mut address = 0;
    ok!(cuTexRefGetAddress_v2(&mut address, t));
    assert_eq!(address, memory + 512);
    // Another format, the same bytes; more texels than there may be.
    ok!(cuTexRefSetFormat(t, 3, 2));
    assert_eq!(ask(module, "line", 1), [130, 131, 0, 1]);
    let most = 1usize << 28;
    ok!(cuTexRefSetFormat(t, BYTE, 1));
    let large = alloc(most + 512);
    ok!(cuTexRefSetAddress_v2(null_mut(), t, large, most));
    assert_eq!(cu!(cuTexRefSetAddress_v2(null_mut(), t, large, most + 1)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuTexRefSetAddress_v2(null_mut(), t, 0, 0));
    assert_eq!(cu!(cuTexRefGetAddress_v2(&mut address, t)), CUDA_ERROR_INVALID_VALUE, "unbound");
}

#[test]
fn pitched_memory() {
    let _context = context();
    let module = module(PTX);
    let t = texture(module, c"t");
    let texels: Vec<u32> = (0..64).map(|i| (i as f32).to_bits()).collect();
    let memory = memory_of(&texels);
    let shape = Flat { width: 5, height: 4, format: FLOAT, channels: 1 };
    ok!(cuTexRefSetAddress2D_v3(t, &shape, memory, 64));
    let at = |x: f32, y: f32| floats(ask(module, "plane", bits(x) | bits(y) << 32))[0];
    assert_eq!([at(2.5, 3.5), at(9.0, -1.0)], [50.0, 4.0]);
    ok!(cuTexRefSetFilterMode(t, 1));
    assert_eq!(at(2.0, 1.0), (1.0 + 2.0 + 17.0 + 18.0) / 4.0);
    assert_eq!(cu!(cuTexRefSetFormat(t, FLOAT, 2)), CUDA_ERROR_INVALID_VALUE, "the description has said it");
    for (address, pitch, width) in
        [(memory + 4, 64, 5), (memory, 68, 5), (memory, 64, 17), (memory, 64, 0), (0x1000, 64, 5)]
    {
        let code = cu!(cuTexRefSetAddress2D_v3(t, &Flat { width, ..shape }, address, pitch));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{address:#x} {pitch} {width}");
    }
    assert_eq!(cu!(cuTexRefSetAddress2D_v3(t, null(), memory, 64)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuTexRefSetAddress2D_v2(t, &shape, memory + 512 - 512, 32));
}

#[test]
fn levels_of_mipmapped_arrays() {
    let _context = context();
    let module = module(PTX);
    let t = texture(module, c"t");
    let (mut mipmapped, mut told) = (0, 0);
    let deep = Deep { width: 2, height: 2, format: FLOAT, channels: 1, ..Deep::default() };
    ok!(cuMipmappedArrayCreate(&mut mipmapped, &deep, 2));
    for (number, texels) in [(0, vec![1.0f32; 4]), (1, vec![3.0])] {
        let mut level = 0;
        ok!(cuMipmappedArrayGetLevel(&mut level, mipmapped, number));
        let side = texels.len().isqrt();
        // CUDA_MEMCPY2D: x, y, kind of memory, host, device, array, pitch of both sides; bytes a row, rows.
        let mut copy = [0u64; 16];
        (copy[2], copy[3], copy[6]) = (1, texels.as_ptr() as u64, 4 * side as u64);
        (copy[9], copy[12]) = (3, level as u64);
        (copy[14], copy[15]) = (4 * side as u64, side as u64);
        ok!(cuMemcpy2D_v2((&raw const copy).cast()));
    }
    ok!(cuTexRefSetMipmappedArray(t, mipmapped, OVERRIDE));
    ok!(cuTexRefGetMipmappedArray(&mut told, t));
    assert_eq!(told, mipmapped);
    ok!(cuTexRefSetFlags(t, NORMALIZED));
    ok!(cuTexRefSetMipmapLevelClamp(t, 0.0, 5.0));
    let level = |l: f32| floats(ask(module, "level", bits(l)))[0];
    assert_eq!([level(0.0), level(0.7), level(9.0)], [1.0, 3.0, 3.0]);
    ok!(cuTexRefSetMipmapFilterMode(t, 1));
    assert_eq!(level(0.25), 1.5);
    ok!(cuTexRefSetMipmapLevelBias(t, 0.25));
    assert_eq!(level(0.25), 2.0);
    ok!(cuTexRefSetMipmapLevelClamp(t, 1.0, 1.0));
    assert_eq!(level(0.0), 3.0);
}

#[test]
fn surfaces() {
    let _context = context();
    let module = module(PTX);
    let mut s = 0;
    ok!(cuModuleGetSurfRef(&mut s, module, c"s".as_ptr()));
    let (plain, good) = (line_of(&[1u32, 2], 3, 1, 0), line_of(&[1u32, 2, 3], 3, 1, 2));
    let mut told = 0;
    assert_eq!(cu!(cuSurfRefGetArray(&mut told, s)), CUDA_ERROR_INVALID_VALUE, "nothing is bound");
    assert_eq!(cu!(cuSurfRefSetArray(s, plain, 0)), CUDA_ERROR_INVALID_VALUE, "not for surfaces");
    assert_eq!(cu!(cuSurfRefSetArray(s, good, 1)), CUDA_ERROR_INVALID_VALUE, "flags");
    ok!(cuSurfRefSetArray(s, good, 0));
    ok!(cuSurfRefGetArray(&mut told, s));
    assert_eq!(told, good);
    ask(module, "put", 4);
    let mut words = [0u32; 3];
    ok!(cuMemcpyAtoH_v2(words.as_mut_ptr().cast(), good, 0, 12));
    assert_eq!(words, [1, 3, 3]);
}

static OPEN: AtomicBool = AtomicBool::new(false);

extern "C" fn wait_until_open(_: *mut c_void) {
    while !OPEN.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// A launch reads what was bound when it was made, whenever it runs; so do captured ones.
#[test]
fn a_launch_takes_what_is_bound_then() {
    let _context = context();
    let module = module(PTX);
    let t = texture(module, c"t");
    let (first, second) = (line_of(&[1u32], 3, 1, 0), line_of(&[2u32], 3, 1, 0));
    let (line, to, stream) = (function(module, "line"), memory_of(&[0; 12]), stream(1));
    ok!(cuTexRefSetArray(t, first, OVERRIDE));
    ok!(cuLaunchHostFunc(stream, wait_until_open, null_mut()));
    assert_eq!(launch(line, 1, 1, stream, &[to, 0]), CUDA_SUCCESS);
    ok!(cuTexRefSetArray(t, second, OVERRIDE));
    assert_eq!(launch(line, 1, 1, stream, &[to + 16, 0]), CUDA_SUCCESS);
    OPEN.store(true, Ordering::Release);
    ok!(cuStreamSynchronize(stream));
    let (mut graph, mut exec) = (0, 0);
    ok!(cuStreamBeginCapture_v2(stream, 0));
    assert_eq!(launch(line, 1, 1, stream, &[to + 32, 0]), CUDA_SUCCESS);
    ok!(cuStreamEndCapture(stream, &mut graph));
    ok!(cuTexRefSetArray(t, first, OVERRIDE));
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    let bytes = read(to, 48);
    assert_eq!([bytes[0], bytes[16], bytes[32]], [1, 2, 2]);
}

/// A kernel that reads through a reference without a binding does what a wild access does.
#[test]
fn nothing_bound() {
    let _context = context();
    let module = module(PTX);
    let to = memory_of(&[5; 4]);
    // Kernels that do not use it may run.
    let moves = api::module(MOVE);
    assert_eq!(launch(function(moves, "move"), 1, 1, 0, &[to, to + 4]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(launch(function(module, "line"), 1, 1, 0, &[to, 0]), CUDA_SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/// Every allocation is where a texture may begin, however small those before it are.
#[test]
fn textures_of_any_allocation() {
    let _context = context();
    for bytes in [1, 256, 300, 4, 512, 257] {
        let memory = alloc(bytes);
        assert_eq!(memory % 512, 0, "after allocations of other sizes");
    }
}

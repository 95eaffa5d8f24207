//! Each error that the device's work can end in, or that a launch is refused with, by a kernel that earns it.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::fmt::Write;

/// A kernel of a parameter `p` (in `%p`, and `%q` is a global address) whose body is `body`.
fn text_of(body: &str) -> String {
    format!(
        ".version 8.0 .target sm_80 .address_size 64 .extern .shared .align 16 .b8 dynamic[];
        .visible .global .align 8 .b8 data[64];
        .visible .entry k(.param .u64 p) {{ .reg .b64 %p, %q; .reg .b32 %r<8>; .reg .f32 %f<200>; .reg .b16 %h; .reg .pred %c;
        .local .align 8 .b8 own[16]; .shared .align 16 .b8 fixed[64];
        ld.param.u64 %p, [p]; mov.u64 %q, data; mov.u32 %r0, %tid.x; {body} ret; }}"
    )
}

/// Runs a kernel by 64 threads, and looks that its error is this, comes from synchronising, and stays for everything.
fn ends_its_context(body: &str, parameter: u64, error: CUresult) {
    let context = context();
    let memory = alloc(64);
    let faulty = function(module(&text_of(body)), "k");
    let (side, mark) = (stream(1), event(0));
    assert_eq!(launch(faulty, 2, 64, side, &[parameter]), CUDA_SUCCESS, "{body}: the launch is good");
    ok!(cuEventRecord(mark, side));
    assert_eq!(cu!(cuStreamSynchronize(side)), error, "{body}");
    assert_eq!(cu!(cuCtxSynchronize()), error, "{body}: it stays");
    assert_eq!(cu!(cuEventQuery(mark)), error, "{body}: events");
    assert_eq!(cu!(cuEventSynchronize(mark)), error, "{body}: events");
    assert_eq!(cu!(cuStreamQuery(0)), error, "{body}: another stream");
    assert_eq!(cu!(cuMemAlloc_v2(&mut 0, 16)), error, "{body}: memory");
    assert_eq!(cu!(cuMemcpyDtoH_v2([0u8; 8].as_mut_ptr().cast(), memory, 8)), error, "{body}: copies");
    assert_eq!(cu!(cuMemsetD8_v2(memory, 1, 8)), error, "{body}: sets");
    assert_eq!(launch(faulty, 1, 1, 0, &[parameter]), error, "{body}: launches");
    drop(context);
    // Another context of the same device is a new beginning.
    let healthy = api::context();
    let memory = alloc(8);
    ok!(cuMemsetD8_v2(memory, 3, 8));
    assert_eq!(read(memory, 8), [3; 8]);
    drop(healthy);
}

#[test]
fn wild_accesses_are_700() {
    let host = Box::new([1u64; 8]);
    let host = std::ptr::from_ref(&*host).expose_provenance() as u64;
    let code = ends_its_context as *const () as u64;
    let aligned_code = code & !15;
    for (body, address) in [
        ("st.global.u32 [%p], %r0;", 0),
        ("st.global.u32 [%p], %r0;", 0xdead_0000),
        ("st.u32 [%p], %r0;", host),
        ("ld.u32 %r1, [%p]; st.u32 [%q], %r1;", host),
        ("st.u32 [%p], %r0;", aligned_code),
        ("st.u32 [%p], %r0;", !3u64),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%p]; st.u32 [%q], %r1;", 1 << 63),
        ("atom.global.add.u32 %r1, [%p], 1;", 64),
        ("red.global.add.u32 [%p], 1;", host),
        // One lane alone, and one that is not the first.
        ("setp.eq.u32 %c, %r0, 37; @%c st.global.u32 [%p], %r0;", 4096),
        // Behind the end of shared and of local memory.
        ("st.shared.u32 [fixed+16777216], %r0;", 0),
        ("mov.u64 %q, own; add.u64 %q, %q, 1073741824; st.local.u32 [%q], %r0;", 0),
        ("mov.u64 %q, fixed; add.u64 %q, %q, 268435456; st.shared.u32 [%q], %r0;", 0),
    ] {
        ends_its_context(body, address, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    // Memory that was given back.
    let context = context();
    let freed = alloc(4 << 20);
    ok!(cuMemFree_v2(freed));
    drop(context);
    ends_its_context("st.global.u32 [%p], %r0;", freed, CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn misaligned_accesses_are_716() {
    for body in [
        "st.global.u32 [%q+2], %r0;",
        "ld.global.u64 %p, [%q+4]; st.global.u64 [%q], %p;",
        "ld.shared.u16 %h, [fixed+1]; st.global.u16 [%q], %h;",
        "mov.u64 %p, own; cvt.u64.u32 %q, %r0; and.b64 %q, %q, 2; add.u64 %p, %p, %q; st.local.u32 [%p], %r0;",
        "atom.global.add.u32 %r1, [%q+1], 1;",
        "add.u64 %q, %q, 3; mov.u16 %h, 1; setp.eq.u32 %c, %r0, 63; @%c st.u16 [%q], %h;",
    ] {
        ends_its_context(body, 0, CUDA_ERROR_MISALIGNED_ADDRESS);
    }
}

#[test]
fn traps_are_719() {
    ends_its_context("trap;", 0, CUDA_ERROR_LAUNCH_FAILED);
    // The last lane of the second block's last warp.
    let one = "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 64, %r0; setp.eq.u32 %c, %r1, 127; @%c trap;";
    ends_its_context(one, 0, CUDA_ERROR_LAUNCH_FAILED);
}

/// What a launch is refused with says nothing of the context: the next launch is as good as ever.
fn is_refused(text: &str, threads: u32, good: u32, error: CUresult) {
    let context = context();
    let kernel = function(module(text), "k");
    let memory = alloc(1 << 20);
    assert_eq!(launch(kernel, 1, threads, 0, &[memory]), error);
    ok!(cuCtxSynchronize());
    assert_eq!(launch(kernel, 1, good, 0, &[memory]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    drop(context);
}

/// Keeps `count` loaded floats across a barrier, so that no compiler can do with fewer registers.
fn hungry(count: u32, directive: &str) -> String {
    let mut body = String::new();
    for i in 0..count {
        write!(body, "ld.global.f32 %f{i}, [%p+{}];", 4 * i).unwrap();
    }
    body += "bar.sync 0;";
    for i in 1..count {
        write!(body, "fma.rn.f32 %f0, %f0, %f{i}, %f{};", count - i).unwrap();
    }
    body += "st.global.f32 [%q], %f0;";
    text_of(&body).replace("k(.param .u64 p) {", &format!("k(.param .u64 p) {directive} {{"))
}

#[test]
fn too_many_registers_for_the_block_are_701() {
    // A multiprocessor has 65,536 registers: 1024 threads have 64 each.
    is_refused(&hungry(120, ""), 1024, 256, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    let context = context();
    let kernel = function(module(&hungry(120, "")), "k");
    let (mut registers, mut most, mut blocks) = (0, 0, 9);
    ok!(cuFuncGetAttribute(&mut registers, 4, kernel));
    ok!(cuFuncGetAttribute(&mut most, 0, kernel));
    assert!((120..=255).contains(&registers), "{registers}");
    assert_eq!(most, 65536 / ((registers + 7) / 8 * 8) / 32 * 32);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, kernel, 1024, 0));
    assert_eq!(blocks, 0);
    assert_eq!(launch(kernel, 1, most as u32, 0, &[alloc(4096)]), CUDA_SUCCESS);
    assert_eq!(launch(kernel, 1, most as u32 + 32, 0, &[alloc(4096)]), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    // Where the text says what the blocks or the registers are, a compiler makes do with those.
    for directive in [".maxntid 1024, 1, 1", ".reqntid 1024", ".maxnreg 64"] {
        let kernel = function(module(&hungry(120, directive)), "k");
        assert_eq!(launch(kernel, 1, 1024, 0, &[alloc(4096)]), CUDA_SUCCESS, "{directive}");
    }
    // Few are kept at a time here, though many are named.
    let mut body = String::new();
    for i in 0..150 {
        write!(body, "ld.global.f32 %f{i}, [%p+{}]; st.global.f32 [%q], %f{i};", 4 * i).unwrap();
    }
    let modest = function(module(&text_of(&body)), "k");
    assert_eq!(launch(modest, 1, 1024, 0, &[alloc(4096)]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    drop(context);
}

#[test]
fn a_cooperative_launch_that_cannot_be_resident_is_720() {
    let context = context();
    let kernel = function(module(&text_of("bar.sync 0; st.global.u32 [%q], %r0;")), "k");
    let (mut each, mut multiprocessors, parameter) = (0, 0, 0u64);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut each, kernel, 512, 0));
    ok!(cuDeviceGetAttribute(&mut multiprocessors, 16, 0));
    let most = (each * multiprocessors) as u32;
    let mut values = [std::ptr::from_ref(&parameter).cast_mut().cast()];
    let mut run =
        |blocks| cu!(cuLaunchCooperativeKernel(kernel, blocks, 1, 1, 512, 1, 1, 0, 0, values.as_mut_ptr()));
    assert_eq!(run(most), CUDA_SUCCESS);
    assert_eq!(run(most + 1), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_eq!(run(1), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    drop(context);
}

#[test]
fn memory_beyond_the_card_is_2_by_every_call_that_takes_some() {
    let context = context();
    let (mut free, mut total, mut address) = (0, 0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    let before = free;
    assert_eq!(cu!(cuMemAlloc_v2(&mut address, total + 1)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAlloc_v2(&mut address, usize::MAX)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAllocManaged(&mut address, total + 1, 1)), CUDA_ERROR_OUT_OF_MEMORY);
    let mut pitch = 0;
    assert_eq!(
        cu!(cuMemAllocPitch_v2(&mut address, &mut pitch, total, 1 << 20, 4)),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    assert_eq!(cu!(cuMemAllocAsync(&mut address, total + 1, 0)), CUDA_ERROR_OUT_OF_MEMORY);
    let whole = Properties { kind: 1, handles: 1, location: on_device(0), windows: 0, flags: 0 };
    assert_eq!(
        cu!(cuMemCreate(&mut address, (total + 1).next_multiple_of(2 << 20), &whole, 0)),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    let large = format!(
        ".version 8.0 .target sm_80 .address_size 64 .visible .global .align 8 .b8 all[{}];
        .visible .entry k() {{ ret; }}",
        total + 1
    );
    let text = std::ffi::CString::new(large).unwrap();
    assert_eq!(cu!(cuModuleLoadData(&mut 0, text.as_ptr().cast())), CUDA_ERROR_OUT_OF_MEMORY);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!(free, before, "what was refused took nothing");
    ok!(cuMemFree_v2(alloc(64)));
    drop(context);
}

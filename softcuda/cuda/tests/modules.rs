//! Images, modules, libraries, links, launches and what kernels die of.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::images::*;
use api::*;
use std::ffi::{CStr, CString, c_void};

#[test]
fn a_kernel_runs_with_its_parameters() {
    let _context = context();
    let module = module(PTX);
    let number = function(module, "number");
    let memory = alloc(1000 * 4);
    assert_eq!(launch(number, 10, 100, 0, &[memory, 5]), CUDA_SUCCESS);
    assert_eq!(words(memory, 1000), (5..1005).collect::<Vec<u32>>());

    let (mut offset, mut size) = (0, 0);
    ok!(cuFuncGetParamInfo(number, 1, &mut offset, &mut size));
    assert_eq!((offset, size), (8, 4));
    assert_eq!(cu!(cuFuncGetParamInfo(number, 2, &mut offset, &mut size)), CUDA_ERROR_INVALID_VALUE);
    let mut name = std::ptr::null();
    ok!(cuFuncGetName(&mut name, number));
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"number");
    let mut of = 0;
    ok!(cuFuncGetModule(&mut of, number));
    assert_eq!(of, module);
}

#[test]
fn parameters_in_one_buffer() {
    let _context = context();
    let number = function(module(PTX), "number");
    let memory = alloc(32 * 4);
    let mut buffer = [0u8; 12];
    buffer[..8].copy_from_slice(&memory.to_le_bytes());
    buffer[8..].copy_from_slice(&9u32.to_le_bytes());
    let sizes = [buffer.len(), buffer.len() - 1];
    let mark = std::ptr::without_provenance_mut::<c_void>;
    let mut extra =
        [mark(1), buffer.as_mut_ptr().cast(), mark(2), (&raw const sizes[0]).cast_mut().cast(), mark(0)];
    let none = std::ptr::null_mut();
    ok!(cuLaunchKernel(number, 1, 1, 1, 32, 1, 1, 0, 0, none, extra.as_mut_ptr()));
    assert_eq!(words(memory, 32), (9..41).collect::<Vec<u32>>());
    extra[3] = (&raw const sizes[1]).cast_mut().cast();
    assert_eq!(
        cu!(cuLaunchKernel(number, 1, 1, 1, 32, 1, 1, 0, 0, none, extra.as_mut_ptr())),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(cu!(cuLaunchKernel(number, 1, 1, 1, 32, 1, 1, 0, 0, none, none)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn variables_have_their_values_and_their_address() {
    let _context = context();
    let module = module(PTX);
    let (mut address, mut size) = (0, 0);
    ok!(cuModuleGetGlobal_v2(&mut address, &mut size, module, c"counter".as_ptr()));
    assert_eq!(size, 4);
    assert_eq!(words(address, 1), [7]);
    assert_eq!(launch(function(module, "count"), 3, 64, 0, &[]), CUDA_SUCCESS);
    assert_eq!(words(address, 1), [7 + 192]);
    ok!(cuModuleGetGlobal_v2(&mut address, &mut size, module, c"table".as_ptr()));
    assert_eq!((read(address, 4), size), (vec![1, 2, 3, 4], 16));
    assert_eq!(
        cu!(cuModuleGetGlobal_v2(&mut address, &mut size, module, c"none".as_ptr())),
        CUDA_ERROR_NOT_FOUND
    );
    let mut function = 0;
    assert_eq!(cu!(cuModuleGetFunction(&mut function, module, c"none".as_ptr())), CUDA_ERROR_NOT_FOUND);
    ok!(cuModuleUnload(module));
    assert_eq!(cu!(cuModuleUnload(module)), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn wrong_launches_are_refused_before_anything_runs() {
    let _context = context();
    let module = module(PTX);
    let nothing = function(module, "nothing");
    let none = std::ptr::null_mut::<*mut c_void>;
    let run = |f, grid: [u32; 3], block: [u32; 3], shared| {
        cu!(cuLaunchKernel(
            f,
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            shared,
            0,
            none(),
            none()
        ))
    };
    assert_eq!(run(nothing, [1, 1, 1], [32, 1, 1], 0), CUDA_SUCCESS);
    for (grid, block) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 1, 1], [0, 1, 1]),
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [1, 1, 65]),
        ([1, 1, 1], [64, 32, 1]),
        ([1, 65536, 1], [1, 1, 1]),
        ([u32::MAX, 1, 1], [1, 1, 1]),
    ] {
        assert_eq!(run(nothing, grid, block, 0), CUDA_ERROR_INVALID_VALUE, "{grid:?} {block:?}");
    }
    assert_eq!(run(nothing, [1, 1, 1], [1, 1, 1], 48 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
    // A block of compute capability 8.9 may have 99 KiB.
    ok!(cuFuncSetAttribute(nothing, 8, 99 * 1024));
    assert_eq!(run(nothing, [1, 1, 1], [1, 1, 1], 99 * 1024), CUDA_SUCCESS);
    assert_eq!(cu!(cuFuncSetAttribute(nothing, 8, 99 * 1024 + 1)), CUDA_ERROR_INVALID_VALUE);
    let bounded = function(module, "bounded");
    assert_eq!(run(bounded, [1, 1, 1], [65, 1, 1], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(run(bounded, [1, 1, 1], [64, 1, 1], 0), CUDA_SUCCESS);
    assert_eq!(run(0x1234, [1, 1, 1], [1, 1, 1], 0), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(
        cu!(cuLaunchCooperativeKernel(nothing, 1 << 20, 1, 1, 32, 1, 1, 0, 0, none())),
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    );
    let mut blocks = 0;
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, nothing, 512, 0));
    // Of 1536 threads.
    assert_eq!(blocks, 3);
    ok!(cuCtxSynchronize());
}

#[test]
fn a_kernels_fault_ends_its_context_and_no_other() {
    let healthy = context();
    let kept = alloc(16);
    for (name, parameters, error) in
        [("wild", vec![0x1000u64], CUDA_ERROR_ILLEGAL_ADDRESS), ("traps", vec![], CUDA_ERROR_LAUNCH_FAILED)]
    {
        let broken = context();
        let faulty = function(module(PTX), name);
        let (memory, stream) = (alloc(16), stream(1));
        assert_eq!(launch(faulty, 1, 1, stream, &parameters), CUDA_SUCCESS);
        assert_eq!(cu!(cuStreamSynchronize(stream)), error, "{name}");
        // It stays.
        let mut address = 0;
        assert_eq!(cu!(cuCtxSynchronize()), error);
        assert_eq!(cu!(cuMemAlloc_v2(&mut address, 16)), error);
        assert_eq!(cu!(cuMemFree_v2(memory)), error);
        assert_eq!(launch(faulty, 1, 1, 0, &parameters), error);
        ok!(cuCtxPushCurrent_v2(healthy.0));
        ok!(cuMemsetD8_v2(kept, 1, 16));
        ok!(cuCtxSynchronize());
        ok!(cuCtxPopCurrent_v2(std::ptr::null_mut()));
        drop(broken);
    }
    ok!(cuCtxSetCurrent(healthy.0));
    assert_eq!(read(kept, 1), [1]);
}

/// 716, for every state space: an address that is no multiple of the access.
#[test]
fn misaligned_accesses_are_716() {
    for access in [
        "ld.global.u32 r, [p+2]",
        "st.global.u64 [p+4], p",
        "atom.global.add.u32 r, [p+1], r",
        "ld.v4.u32 {r, r, r, r}, [p+8]",
    ] {
        let context = context();
        let text = format!(
            ".version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 a) {{ .reg .b64 p; .reg .b32 r; ld.param.u64 p, [a]; mov.u32 r, 0; {access}; st.global.u32 [p], r; ret; }}"
        );
        let kernel = function(module(&text), "k");
        assert_eq!(launch(kernel, 1, 32, 0, &[alloc(64)]), CUDA_SUCCESS);
        assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_MISALIGNED_ADDRESS, "{access}");
        assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_MISALIGNED_ADDRESS, "it stays");
        drop(context);
    }
}

#[test]
fn libraries_belong_to_no_context() {
    let first = context();
    let text = CString::new(PTX).unwrap();
    let (mut library, mut kernel, mut count) = (0, 0, 0);
    let none = std::ptr::null_mut;
    ok!(cuLibraryLoadData(
        &mut library,
        text.as_ptr().cast(),
        none(),
        std::ptr::null_mut(),
        0,
        none(),
        std::ptr::null_mut(),
        0
    ));
    ok!(cuLibraryGetKernelCount(&mut count, library));
    assert_eq!(count, 6);
    ok!(cuLibraryGetKernel(&mut kernel, library, c"number".as_ptr()));
    assert_eq!(cu!(cuLibraryGetKernel(&mut kernel, library, c"none".as_ptr())), CUDA_ERROR_NOT_FOUND);
    let memory = alloc(8 * 4);
    // A kernel may be launched as if it were a function.
    assert_eq!(launch(kernel, 1, 8, 0, &[memory, 1]), CUDA_SUCCESS);
    assert_eq!(words(memory, 8), (1..9).collect::<Vec<u32>>());
    let mut address = [0; 2];
    ok!(cuLibraryGetGlobal(&mut address[0], std::ptr::null_mut(), library, c"counter".as_ptr()));
    let second = context();
    ok!(cuLibraryGetGlobal(&mut address[1], std::ptr::null_mut(), library, c"counter".as_ptr()));
    assert_ne!(address[0], address[1], "each context has variables of its own");
    let memory = alloc(8 * 4);
    assert_eq!(launch(kernel, 1, 8, 0, &[memory, 2]), CUDA_SUCCESS);
    assert_eq!(words(memory, 8), (2..10).collect::<Vec<u32>>());
    ok!(cuKernelSetAttribute(8, 64 * 1024, kernel, 0));
    let (mut f, mut value) = (0, 0);
    ok!(cuKernelGetFunction(&mut f, kernel));
    ok!(cuFuncGetAttribute(&mut value, 8, f));
    assert_eq!(value, 64 * 1024, "a kernel's setting is its functions' setting");
    ok!(cuLibraryUnload(library));
    assert_eq!(launch(kernel, 1, 8, 0, &[memory, 2]), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(launch(f, 1, 8, 0, &[memory, 2]), CUDA_ERROR_INVALID_HANDLE);
    drop((first, second));
}

#[test]
fn ptx_that_does_not_parse_names_its_line() {
    let _context = context();
    let bad = PTX.replace("mov.u32 %r2, %ctaid.x;", "frobnicate.u32 %r2, %ctaid.x;");
    let line = bad.lines().position(|l| l.contains("frobnicate")).unwrap() + 1;
    let (result, log) = load_with_log(CString::new(bad).unwrap().as_bytes_with_nul());
    assert_eq!(result, CUDA_ERROR_INVALID_PTX);
    assert!(log.contains(&format!("line {line}")), "{log}");
    assert_eq!(load_with_log(b"hello world\0").0, CUDA_ERROR_INVALID_PTX);
    let (result, log) = load_with_log(CString::new(PTX).unwrap().as_bytes_with_nul());
    assert_eq!((result, log.as_str()), (CUDA_SUCCESS, ""));
}

/// What no device here can do is refused when it is loaded, by the text's line and the instruction's name.
#[test]
fn instructions_that_are_left_out_are_refused_at_load() {
    let _context = context();
    let head = ".version 9.0\n.target sm_89\n.address_size 64\n";
    for instruction in [
        "wgmma.fence.sync.aligned",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f, f, f, f}, d, d, 1, 1, 1, 0, 0",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r], [d], 16, [r]",
        "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [r], [d, {r}], [r]",
        "cp.async.bulk.commit_group",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [d], [r], 16",
        "tensormap.replace.tile.global_address.global.b1024.b64 [d], d",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [r], 32",
        "tcgen05.mma.cta_group::1.kind::f16 [r], d, d, r, p",
        "multimem.ld_reduce.relaxed.sys.global.add.u32 r, [d]",
    ] {
        let text = format!(
            "{head}.visible .entry k() {{\n.reg .b32 r; .reg .b64 d; .reg .f32 f; .reg .pred p;\n{instruction};\nret;\n}}\n"
        );
        let (result, log) = load_with_log(CString::new(text).unwrap().as_bytes_with_nul());
        assert_eq!(result, CUDA_ERROR_INVALID_PTX, "{instruction}");
        let opcode = instruction.split(' ').next().unwrap();
        assert!(log.contains("line 6") && log.contains(opcode), "{opcode}: {log}");
    }
    // Kernels that launch kernels call the device runtime, which is not there.
    let text = format!(
        "{head}.extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 a, .param .b64 b);\n.visible .entry k() {{\n\
         .reg .b64 d; mov.u64 d, 0;\n{{ .param .b64 a, b; .param .b32 q;\nst.param.b64 [a], d; st.param.b64 [b], d;\n\
         call (q), cudaLaunchDeviceV2, (a, b); }}\nret;\n}}\n"
    );
    let (result, log) = load_with_log(CString::new(text).unwrap().as_bytes_with_nul());
    assert_eq!(result, CUDA_ERROR_INVALID_PTX);
    assert!(log.contains("cudaLaunchDeviceV2") && log.contains("line 9"), "{log}");
}

#[test]
fn fatbins_without_an_image_for_the_device_and_junk() {
    let _context = context();
    assert_eq!(load_with_log(&fatbin(1, 75, PTX.as_bytes())).0, CUDA_SUCCESS);
    assert_eq!(load_with_log(&fatbin(1, 100, PTX.as_bytes())).0, CUDA_ERROR_NO_BINARY_FOR_GPU);
    let (result, log) = load_with_log(&fatbin(2, 90, b"\x7fELFxxxx"));
    assert_eq!(result, CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert!(log.contains("PTX"), "{log}");
    assert_eq!(load_with_log(&[0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0]).0, CUDA_ERROR_INVALID_IMAGE);
    let mut module = 0;
    assert_eq!(cu!(cuModuleLoadData(&mut module, std::ptr::null())), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuModuleLoad(&mut module, c"/nowhere/at/all".as_ptr())), CUDA_ERROR_FILE_NOT_FOUND);
}

#[test]
fn damaged_images_are_refused_and_survived() {
    let _context = context();
    let text = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry e() { ret; }\n";
    let good = fatbin(1, 75, text.as_bytes());
    assert_eq!(load_with_log(&good).0, CUDA_SUCCESS);
    for at in 16..16 + 64 {
        for value in [0, 0x41, 0x7f, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            let (result, _) = load_with_log(&bad);
            assert_ne!(result, CUDA_ERROR_UNKNOWN, "byte {at} = {value}");
        }
    }
    // A wrapper around it, and a wrapper around nothing.
    let mut wrapper = [0u64; 3];
    wrapper[0] = 0x4662_43b1 | 1 << 32;
    wrapper[1] = good.as_ptr().expose_provenance() as u64;
    let bytes = |w: &[u64; 3]| w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    assert_eq!(load_with_log(&bytes(&wrapper)).0, CUDA_SUCCESS);
    wrapper[1] = 0;
    assert_eq!(load_with_log(&bytes(&wrapper)).0, CUDA_ERROR_INVALID_IMAGE);
    wrapper[0] = 0x4662_43b1 | 9 << 32;
    wrapper[1] = good.as_ptr().expose_provenance() as u64;
    assert_eq!(load_with_log(&bytes(&wrapper)).0, CUDA_ERROR_INVALID_IMAGE);
}

/// What NVIDIA's runtime hands over: the compiler's wrapper, here through the table that CUDA 11's runtime uses.
#[test]
fn a_wrapper_loads_through_the_private_table_and_is_answered_as_the_runtime_expects() {
    type Load = unsafe extern "C" fn(*mut H, *const c_void, usize, usize, u32) -> CUresult;
    type Unload = unsafe extern "C" fn(*const c_void) -> CUresult;
    let _context = context();
    let fatbin = fatbin(1, 75, PTX.as_bytes());
    let wrapper = [0x4662_43b1u64 | 1 << 32, fatbin.as_ptr().expose_provenance() as u64, 0];
    let uuid = 0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9u128.to_be_bytes();
    let mut table = std::ptr::null::<*const c_void>();
    ok!(cuGetExportTable((&raw mut table).cast(), uuid.as_ptr().cast()));
    let mut module = 0;
    // SAFETY: the slots have these prototypes, and the wrapper stays where it is.
    let unload = unsafe {
        let load: Load = std::mem::transmute::<*const c_void, Load>(*table.add(6));
        assert_eq!(load(&mut module, wrapper.as_ptr().cast(), 0, 0, 0), CUDA_SUCCESS);
        std::mem::transmute::<*const c_void, Unload>(*table.add(7))
    };
    let nothing = function(module, "nothing");
    assert_eq!(launch(nothing, 1, 32, 0, &[]), CUDA_SUCCESS);
    // A number that is none of CUresult: asked for as such.
    type Launch = unsafe extern "C" fn(
        H,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        H,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> u32;
    // SAFETY: the function returns a C enumeration, which is an unsigned int.
    let raw: Launch = unsafe { std::mem::transmute(api().cuLaunchKernel) };
    let none = std::ptr::null_mut();
    // SAFETY: a kernel without parameters.
    assert_eq!(unsafe { raw(nothing, 1, 1, 1, 1025, 1, 1, 0, 0, none, none) }, 9);
    // SAFETY: as above.
    assert_eq!(unsafe { raw(nothing, 1, 1, 1, 1, 1, 1, 1 << 20, 0, none, none) }, 1);
    // SAFETY: as above.
    unsafe {
        assert_eq!(unload(wrapper.as_ptr().cast()), CUDA_SUCCESS);
        assert_eq!(unload(wrapper.as_ptr().cast()), CUDA_ERROR_NOT_FOUND);
    }
    assert_eq!(launch(nothing, 1, 32, 0, &[]), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn managed_variables_have_their_address_before_any_context() {
    let ptx = ".version 7.0\n.target sm_75\n.address_size 64\n\
        .visible .global .attribute(.managed) .align 4 .u32 shared_by_both = 5;\n.visible .global .align 4 .u32 other;\n\
        .visible .entry add() {\n .reg .b32 %r<2>;\n .reg .b64 %d<2>;\n mov.u64 %d1, shared_by_both;\n \
        atom.global.add.u32 %r1, [%d1], 10;\n ret;\n}\n";
    std::thread::spawn(move || {
        let text = CString::new(ptx).unwrap();
        let (mut library, mut kernel, mut address, mut size) = (0, 0, 0, 0);
        let none = std::ptr::null_mut;
        ok!(cuLibraryLoadData(
            &mut library,
            text.as_ptr().cast(),
            none(),
            std::ptr::null_mut(),
            0,
            none(),
            std::ptr::null_mut(),
            0
        ));
        ok!(cuLibraryGetManaged(&mut address, &mut size, library, c"shared_by_both".as_ptr()));
        assert_eq!(
            cu!(cuLibraryGetManaged(&mut address, &mut size, library, c"other".as_ptr())),
            CUDA_ERROR_NOT_FOUND
        );
        // SAFETY: managed memory is the host's as well, and no kernel runs.
        let value = || unsafe { (address as *const u32).read_volatile() };
        assert_eq!((value(), size), (5, 4));
        ok!(cuLibraryGetKernel(&mut kernel, library, c"add".as_ptr()));
        for round in 1..=2 {
            let _context = context();
            assert_eq!(launch(kernel, 1, 1, 0, &[]), CUDA_SUCCESS);
            ok!(cuCtxSynchronize());
            assert_eq!(value(), 5 + 10 * round, "one variable for all contexts");
        }
        ok!(cuLibraryUnload(library));
    })
    .join()
    .unwrap();
}

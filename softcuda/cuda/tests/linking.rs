//! Links, and what comes in with them: objects, archives, machine code.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::images::*;
use api::*;
use std::ffi::{CStr, c_void};

/// `SOFTCUDA_SASS=skip`: a cubin loads, its kernels have their parameters and do nothing; otherwise it is 209.
#[test]
fn machine_code_is_skipped_if_that_is_wanted() {
    let _context = context();
    let cubin = cubin();
    assert_eq!(load_with_log(&cubin).0, CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_eq!(load_with_log(&fatbin(2, 89, &cubin)).0, CUDA_ERROR_NO_BINARY_FOR_GPU);
    let name = "machine_code_is_skipped_if_that_is_wanted_there";
    let me = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(me);
    child.args([name, "--exact", "--ignored", "--nocapture"]).env("SOFTCUDA_SASS", "skip");
    let out = child.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(said.matches("MACHINE CODE IS NOT RUN").count(), 1, "once: {said}");
}

#[test]
#[ignore = "run by `machine_code_is_skipped_if_that_is_wanted` with the switch set"]
fn machine_code_is_skipped_if_that_is_wanted_there() {
    let _context = context();
    let cubin = cubin();
    for image in [cubin.clone(), fatbin(2, 89, &cubin), fatbin(2, 120, &cubin)] {
        let mut module = 0;
        ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        let kernel = function(module, "scale");
        let (mut offset, mut size) = (0, 0);
        ok!(cuFuncGetParamInfo(kernel, 1, &mut offset, &mut size));
        assert_eq!((offset, size), (8, 4));
        assert_eq!(cu!(cuFuncGetParamInfo(kernel, 2, &mut offset, &mut size)), CUDA_ERROR_INVALID_VALUE);
        let memory = alloc(16);
        ok!(cuMemsetD8_v2(memory, 7, 16));
        assert_eq!(launch(kernel, 2, 32, 0, &[memory, 3]), CUDA_SUCCESS);
        assert_eq!(read(memory, 16), [7; 16]);
        let (mut address, mut bytes) = (0, 0);
        ok!(cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"table".as_ptr()));
        assert_eq!(bytes, 40);
        let mut none = 0;
        assert_eq!(cu!(cuModuleGetFunction(&mut none, module, c"helper".as_ptr())), CUDA_ERROR_NOT_FOUND);
    }
    // What holds PTX as well is run.
    let both = [fatbin(2, 89, &cubin), fatbin(1, 75, PTX.as_bytes())];
    let mut image = both[0].clone();
    image.extend(&both[1][16..]);
    let length = (image.len() - 16) as u64;
    image[8..16].copy_from_slice(&length.to_le_bytes());
    let mut module = 0;
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    function(module, "number");
}

#[test]
fn objects_and_archives_are_linked() {
    let _context = context();
    let head = ".version 7.0\n.target sm_75\n.address_size 64\n";
    let function = |name: &str, value: u32| {
        let text = format!(
            "{head}.func (.param .b32 r) own() {{ .reg .b32 a; mov.u32 a, {value}; st.param.b32 [r], a; ret; }}\n\
             .visible .func (.param .b32 r) {name}() {{ .reg .b32 a; .param .b32 q; call (q), own; ld.param.b32 a, [q]; st.param.b32 [r], a; ret; }}\n"
        );
        fatbin(1, 75, text.as_bytes())
    };
    let caller = format!(
        "{head}.extern .func (.param .b32 r) f();\n.extern .func (.param .b32 r) g();\n.extern .func (.param .b32 r) h();\n\
         .visible .entry sum(.param .u64 out) {{ .reg .b32 a, b, c; .reg .b64 o; .param .b32 q; ld.param.u64 o, [out]; call (q), f; ld.param.b32 a, [q];\n\
         call (q), g; ld.param.b32 b, [q]; call (q), h; ld.param.b32 c, [q]; add.u32 a, a, b; add.u32 a, a, c; st.global.u32 [o], a; ret; }}\n"
    );
    let mut log = [0u8; 200];
    let mut names = [5u32, 6];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
    let (mut link, mut image, mut size) = (0, std::ptr::null_mut(), 0);
    ok!(cuLinkCreate_v2(2, names.as_mut_ptr(), values.as_mut_ptr(), &mut link));
    let add = |kind: u32, data: &[u8]| {
        let none = std::ptr::null_mut::<u32>();
        let bytes = data.as_ptr().cast_mut().cast();
        cu!(cuLinkAddData_v2(link, kind, bytes, data.len(), c"part".as_ptr(), 0, none, std::ptr::null_mut()))
    };
    assert_eq!(add(1, caller.as_bytes()), CUDA_SUCCESS);
    // Two fatbins in one section; an object without device code; an archive whose members are one with and some without.
    let both = [function("f", 1), function("g", 20)].concat();
    assert_eq!(add(3, &object("__nv_relfatbin", &both)), CUDA_SUCCESS);
    assert_eq!(add(3, &object(".text", b"\xc3")), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_eq!(add(3, b"not an object at all"), CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(cu!(cuLinkComplete(link, &mut image, &mut size)), CUDA_ERROR_INVALID_PTX);
    let said = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap().to_owned();
    assert!(said.contains("undefined reference to `h`"), "{said}");
    let machine_code = object("__nv_relfatbin", &fatbin(2, 75, b"\x7fELFxxxx"));
    let useful = object(".nv_fatbin", &function("h", 300));
    assert_eq!(add(4, &archive(&[b"symbols", &machine_code, &useful])), CUDA_SUCCESS);
    assert_eq!(add(4, b"no archive"), CUDA_ERROR_INVALID_IMAGE);
    ok!(cuLinkComplete(link, &mut image, &mut size));
    let mut module = 0;
    ok!(cuModuleLoadData(&mut module, image));
    let memory = alloc(4);
    assert_eq!(launch(api::function(module, "sum"), 1, 1, 0, &[memory]), CUDA_SUCCESS);
    assert_eq!(words(memory, 1), [321]);
    ok!(cuLinkDestroy(link));
}

#[test]
fn a_link_makes_an_image_that_loads() {
    let _context = context();
    let callee = ".version 7.0\n.target sm_75\n.address_size 64\n\
        .visible .func (.param .b32 r) twice(.param .b32 x) {\n .reg .b32 %a<3>;\n ld.param.u32 %a1, [x];\n \
        add.u32 %a2, %a1, %a1;\n st.param.b32 [r], %a2;\n ret;\n}\n";
    let caller = ".version 7.0\n.target sm_75\n.address_size 64\n\
        .extern .func (.param .b32 r) twice(.param .b32 x);\n\
        .visible .entry use_it(.param .u64 out) {\n .reg .b32 %r<3>;\n .reg .b64 %d<3>;\n ld.param.u64 %d1, [out];\n \
        mov.u32 %r1, 21;\n {\n .param .b32 p;\n st.param.b32 [p], %r1;\n .param .b32 q;\n call.uni (q), twice, (p);\n \
        ld.param.b32 %r2, [q];\n }\n st.global.u32 [%d1], %r2;\n ret;\n}\n";
    let (mut log, mut names) = ([0u8; 200], [5u32, 6, 0]);
    let number = std::ptr::without_provenance_mut::<c_void>;
    let mut values = [log.as_mut_ptr().cast::<c_void>(), number(log.len()), number(9)];
    let (mut link, mut image, mut size) = (0, std::ptr::null_mut(), 0);
    ok!(cuLinkCreate_v2(3, names.as_mut_ptr(), values.as_mut_ptr(), &mut link));
    let add = |text: &str| {
        let data = text.as_ptr().cast_mut().cast();
        let none = std::ptr::null_mut::<u32>();
        cu!(cuLinkAddData_v2(link, 1, data, text.len(), c"part".as_ptr(), 0, none, std::ptr::null_mut()))
    };
    assert_eq!(add(".version 7.0\n.target sm_75\nnonsense"), CUDA_ERROR_INVALID_PTX);
    let said = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap().to_owned();
    assert!(said.contains("line 3"), "{said}");
    assert_eq!(add(callee), CUDA_SUCCESS);
    assert_eq!(add(caller), CUDA_SUCCESS);
    ok!(cuLinkComplete(link, &mut image, &mut size));
    let bytes = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec();
    assert_eq!(&bytes[..4], b"\x7fELF");
    ok!(cuLinkDestroy(link));
    assert_eq!(cu!(cuLinkComplete(link, &mut image, &mut size)), CUDA_ERROR_INVALID_HANDLE);
    let mut module = 0;
    ok!(cuModuleLoadData(&mut module, bytes.as_ptr().cast()));
    let memory = alloc(4);
    let use_it = function(module, "use_it");
    assert_eq!(launch(use_it, 1, 1, 0, &[memory]), CUDA_SUCCESS);
    assert_eq!(words(memory, 1), [42]);
    let mut registers = 0;
    ok!(cuFuncGetAttribute(&mut registers, 4, use_it));
    assert_eq!(registers, 9, "as the linker was told");
}

//! A program that closes all descriptors that it does not know, as daemons do, and has files of its own under their numbers.
//! A file of its own, as it closes those of the whole process.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::fs::File;

/// Copies from and to memory of the program, and a kernel on some of it.
fn works(pages: &mut [u32]) {
    let memory = alloc(64);
    let (from, mut to) = ([7u32; 16], [0u32; 16]);
    ok!(cuMemcpyHtoD_v2(memory, from.as_ptr().cast(), 64));
    ok!(cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), memory, 64));
    assert_eq!(to, from);
    let host: *mut c_void = pages.as_mut_ptr().cast();
    ok!(cuMemHostRegister_v2(host, 4096, 0));
    let address = host.expose_provenance() as u64;
    assert_eq!(launch(function(module(MOVE), "move"), 1, 1, 0, &[address, memory]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(pages[0], 7);
    ok!(cuMemHostUnregister(host));
}

#[test]
fn a_program_may_close_all_descriptors() {
    let context = context();
    let mut pages = vec![0u32; 3 * 1024];
    let first = pages.as_ptr().align_offset(4096);
    let pages = &mut pages[first..first + 1024];
    works(pages);
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
    pages[0] = 0;
    works(pages);
    let _own: Vec<File> = (0..64).map(|_| File::open("/dev/null").unwrap()).collect();
    pages[0] = 0;
    works(pages);
    drop(context);
}

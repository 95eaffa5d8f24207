//! The library as a program sees it.
#![allow(unsafe_code)]

use std::path::PathBuf;

use libloading::{Library, Symbol};

fn library() -> Library {
    let directory = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let path: PathBuf = [directory.join("libnulldriver.so"), directory.join("../libnulldriver.so")]
        .into_iter()
        .find(|path| path.is_file())
        .expect("cargo builds the library before its tests");
    // SAFETY: it has no initialisers.
    unsafe { Library::new(path) }.unwrap()
}

macro_rules! call {
    ($library:expr, $name:literal, ($($type:ty),*), $($argument:expr),*) => {{
        // SAFETY: the prototype is that of cuda.h, and pointers are to live values.
        unsafe {
            let function: Symbol<'_, unsafe extern "C" fn($($type),*) -> u32> = $library.get($name.as_bytes()).unwrap();
            function($($argument),*)
        }
    }};
}

#[test]
fn memory_is_real() {
    let library = library();
    let (mut address, mut free, mut total) = (0u64, 0usize, 0usize);
    assert_eq!(call!(library, "cuMemGetInfo_v2", (*mut usize, *mut usize), &mut free, &mut total), 0);
    assert_eq!(call!(library, "cuMemAlloc_v2", (*mut u64, usize), &mut address, 1 << 20), 0);
    let mut left = 0usize;
    assert_eq!(call!(library, "cuMemGetInfo_v2", (*mut usize, *mut usize), &mut left, &mut total), 0);
    assert_eq!(free - left, 1 << 20);
    assert_eq!(call!(library, "cuMemsetD32Async", (u64, u32, usize, u64), address, 0x0403_0201, 3, 0), 0);
    assert_eq!(call!(library, "cuMemcpyDtoD_v2", (u64, u64, usize), address + 13, address, 8), 0);
    let mut bytes = [9u8; 24];
    assert_eq!(call!(library, "cuMemcpyDtoH_v2", (*mut u8, u64, usize), bytes.as_mut_ptr(), address, 24), 0);
    assert_eq!(bytes, [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 0, 1, 2, 3, 4, 1, 2, 3, 4, 0, 0, 0]);
    assert_eq!(call!(library, "cuMemFree_v2", (u64), address), 0);
    assert_eq!(call!(library, "cuMemFree_v2", (u64), address), 1, "CUDA_ERROR_INVALID_VALUE");
    assert_eq!(
        call!(library, "cuMemAlloc_v2", (*mut u64, usize), &mut address, total + 1),
        2,
        "OUT_OF_MEMORY"
    );
    assert_eq!(call!(library, "cuMemcpyDtoH_v2", (*mut u8, u64, usize), bytes.as_mut_ptr(), 4096, 24), 1);
}

/// The order of calls of the CUDA manual's "Virtual Memory Management".
#[test]
fn virtual_memory_takes_hints_and_checks_what_is_mapped() {
    const SIZE: usize = 4 << 20;
    let library = library();
    let (mut first, mut second, mut handle) = (0u64, 0u64, 0u64);
    let reserve = |to: &mut u64, hint| {
        call!(library, "cuMemAddressReserve", (*mut u64, usize, usize, u64, u64), to, SIZE, 0, hint, 0)
    };
    assert_eq!(reserve(&mut first, 0), 0);
    assert_eq!(call!(library, "cuMemAddressFree", (u64, usize), first, SIZE), 0);
    assert_eq!(reserve(&mut second, first), 0);
    assert_eq!(second, first, "the hint is taken where it is free");
    assert_eq!(reserve(&mut first, second), 0);
    assert_ne!(first, second);
    assert_eq!(call!(library, "cuMemCreate", (*mut u64, usize, usize, u64), &mut handle, SIZE, 0, 0), 0);
    let set = |at| call!(library, "cuMemsetD8Async", (u64, u8, usize, u64), at, 7, SIZE, 0);
    assert_eq!(set(first), 1, "nothing is mapped");
    for at in [first, second] {
        assert_eq!(call!(library, "cuMemMap", (u64, usize, usize, u64, u64), at, SIZE, 0, handle, 0), 0);
        assert_eq!(set(at), 1, "nobody has access");
        let access = [1u32, 0, 3];
        let code =
            call!(library, "cuMemSetAccess", (u64, usize, *const [u32; 3], usize), at, SIZE, &access, 1);
        assert_eq!(code, 0);
    }
    assert_eq!(call!(library, "cuMemRelease", (u64), handle), 0);
    assert_eq!(set(first), 0);
    let mut byte = 0u8;
    let last = second + SIZE as u64 - 1;
    assert_eq!(call!(library, "cuMemcpyDtoH_v2", (*mut u8, u64, usize), &mut byte, last, 1), 0);
    assert_eq!(byte, 7, "both addresses show the same memory");
    assert_eq!(call!(library, "cuMemcpyDtoH_v2", (*mut u8, u64, usize), &mut byte, last + 1, 1), 1);
    assert_eq!(call!(library, "cuMemAddressFree", (u64, usize), first, SIZE), 1, "still mapped");
    for at in [first, second] {
        assert_eq!(call!(library, "cuMemUnmap", (u64, usize), at, SIZE), 0);
        assert_eq!(call!(library, "cuMemAddressFree", (u64, usize), at, SIZE), 0);
    }
    assert_eq!(set(first), 1);
}

#[test]
fn what_it_does_not_have_is_refused() {
    let library = library();
    assert_eq!(call!(library, "cuGraphCreate", (*mut u64, u32), &mut 0, 0), 801, "CUDA_ERROR_NOT_SUPPORTED");
}

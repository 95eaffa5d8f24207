//! What the library does to a process that it is only loaded into, and to one that forks or exits.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;

fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// One test, as it counts the threads and files of the whole process.
#[test]
fn loading_and_initialising_start_nothing_and_a_child_is_told() {
    let before = (entries("/proc/self/task"), entries("/proc/self/fd"));
    api();
    assert_eq!((entries("/proc/self/task"), entries("/proc/self/fd")), before);
    let context = context();
    alloc(1 << 20);
    ok!(cuMemGetInfo_v2(&mut 0, &mut 0));
    assert_eq!(entries("/proc/self/task"), before.0, "no thread before there is work");
    let (stream, memory) = (stream(0), alloc(1 << 20));
    ok!(cuMemsetD8Async(memory, 1, 16, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(entries("/proc/self/task"), before.0, "work that is shorter than waking a thread needs none");
    ok!(cuMemsetD8Async(memory, 1, 1 << 20, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(entries("/proc/self/task"), before.0 + 1);

    let child = unsafe { libc::fork() };
    if child == 0 {
        let answers = (cu!(cuMemGetInfo_v2(&mut 0, &mut 0)), cu!(cuInit(0)), cu!(cuDriverGetVersion(&mut 0)));
        let right = answers == (CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED, CUDA_SUCCESS);
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's calls were not refused");
    drop(context);
}

/// What the process does with each signal: the handler's address, or zero and one.
fn handlers() -> Vec<usize> {
    (1..=64)
        .map(|signal| {
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // The two that the C library keeps for itself (32 and 33) are refused and stay zero.
            unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
            action.sa_sigaction
        })
        .collect()
}

/// A kernel's wild access is found by its check, so the driver needs no signal, and a program's own handlers stay in place.
#[test]
fn signals_stay_the_programs() {
    extern "C" fn of_the_program(_: i32) {}
    unsafe { libc::signal(libc::SIGBUS, of_the_program as *const () as usize) };
    let before = handlers();
    assert_eq!(before[libc::SIGBUS as usize - 1], of_the_program as *const () as usize);

    let _context = context();
    let wild = function(module(include_str!("api/kernels.ptx")), "wild");
    assert_eq!(launch(wild, 1, 32, 0, &[0x1000]), CUDA_SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(handlers(), before);
}

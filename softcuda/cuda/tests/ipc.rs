//! Memory of another process, by handle.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::process::Stdio;

const VARIABLE: &str = "SOFTCUDA_TEST_HANDLE";

/// What the other process does: reads 42, writes 43 by a kernel, looks at every error.
fn other_process() {
    let context = context();
    let mut address = 0;
    let handle = Ipc::from_text(&std::env::var(VARIABLE).expect("a handle"));
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut address, handle, 0)), CUDA_ERROR_INVALID_VALUE);
    let mut forged = handle;
    forged.0[12] ^= 0x55;
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut address, forged, 1)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut address, Ipc([0; 64]), 1)), CUDA_ERROR_INVALID_HANDLE);
    ok!(cuIpcOpenMemHandle_v2(&mut address, handle, 1));
    let mut again = 0;
    ok!(cuIpcOpenMemHandle_v2(&mut again, handle, 1));
    assert_eq!(address, again);
    let (mut base, mut size) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut base, &mut size, address + 9));
    assert_eq!((base, size), (address, 1000));
    assert_eq!(read(address, 1000), [42; 1000]);
    let mine = alloc(4);
    ok!(cuMemsetD8_v2(mine, 43, 4));
    ok!(cuCtxSynchronize());
    assert_eq!(move_on(0, address + 8, mine), CUDA_SUCCESS);
    assert_eq!(cu!(cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE, "it is not this process's");
    ok!(cuIpcCloseMemHandle(address));
    assert_eq!(read(address, 4), [42; 4], "opened twice");
    ok!(cuIpcCloseMemHandle(address));
    assert_eq!(cu!(cuIpcCloseMemHandle(address)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(move_on(0, address, mine), CUDA_ERROR_ILLEGAL_ADDRESS);
    drop(context);
}

#[test]
fn another_process_shares_memory() {
    const NAME: &str = "another_process_shares_memory";
    if std::env::var_os(VARIABLE).is_some() {
        return other_process();
    }
    let _context = context();
    // A small allocation, which shares its part of the memory with others, and a large one.
    for bytes in [1000, 1000 + (4 << 20)] {
        let (neighbour, memory) = (alloc(bytes), alloc(bytes));
        ok!(cuMemsetD8_v2(neighbour, 7, bytes));
        ok!(cuMemsetD8_v2(memory, 42, bytes));
        let mut handle = Ipc([0; 64]);
        if bytes == 1000 {
            ok!(cuIpcGetMemHandle(&mut handle, memory + 5));
            assert_eq!(
                cu!(cuIpcOpenMemHandle_v2(&mut 0, handle, 1)),
                CUDA_ERROR_INVALID_CONTEXT,
                "one's own"
            );
            in_child(NAME, &[(VARIABLE, &handle.to_text())], Stdio::null(), || ());
            assert_eq!(read(memory, 12), [42, 42, 42, 42, 42, 42, 42, 42, 43, 43, 43, 43]);
        } else {
            ok!(cuIpcGetMemHandle(&mut handle, memory));
            assert_eq!(read(memory + bytes as u64 - 4, 4), [42; 4], "it stays where it is");
        }
        assert_eq!(read(neighbour, bytes), vec![7; bytes]);
        assert_eq!(move_on(0, memory, neighbour), CUDA_SUCCESS);
        ok!(cuMemFree_v2(memory));
        assert_eq!(cu!(cuIpcGetMemHandle(&mut handle, memory)), CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemFree_v2(neighbour));
        // The place is used again, by memory that nobody shares.
        let next = alloc(bytes);
        ok!(cuMemsetD8_v2(next, 1, bytes));
        assert_eq!(read(next, bytes), vec![1; bytes]);
        ok!(cuMemFree_v2(next));
    }
    let mut pinned = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut pinned, 64, 0));
    assert_eq!(cu!(cuIpcGetMemHandle(&mut Ipc([0; 64]), pinned.addr() as u64)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemFreeHost(pinned));
}

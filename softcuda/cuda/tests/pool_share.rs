//! Pools of two processes.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::peer::{Peer, in_peer, tell, told};
use api::*;
use std::os::fd::AsRawFd;
use std::process::Stdio;

const HANDLE: &str = "SOFTCUDA_TEST_HANDLE";
const FILE: &str = "SOFTCUDA_TEST_FILE";
const BYTES: usize = 1 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: u32 = 1;

fn create(handles: u32) -> H {
    let properties =
        PoolProperties { kind: 1, handles, location: on_device(0), security: 0, most: 0, rest: [0; 7] };
    let mut pool = 0;
    ok!(cuMemPoolCreate(&mut pool, &properties));
    pool
}

fn take(pool: H) -> u64 {
    let mut address = 0;
    ok!(cuMemAllocFromPoolAsync(&mut address, BYTES, pool, 0));
    address
}

/// A descriptor as the call takes it.
fn as_handle(file: i32) -> *mut std::ffi::c_void {
    std::ptr::without_provenance_mut(file as usize)
}

fn other_process() {
    let _context = context();
    let open = |path| std::fs::File::options().read(true).write(true).open(path).expect("it opens");
    let file = open(std::env::var(FILE).expect("a file"));
    let handle = Ipc::from_text(&std::env::var(HANDLE).expect("a handle"));
    let (mut pool, mut address) = (0, 0);
    let nothing = open("/dev/null".to_owned());
    let import = |pool: &mut H, file: i32, flags| {
        cu!(cuMemPoolImportFromShareableHandle(pool, as_handle(file), DESCRIPTOR, flags))
    };
    assert_eq!(import(&mut pool, nothing.as_raw_fd(), 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(import(&mut pool, -1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(import(&mut pool, file.as_raw_fd(), 1), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(import(&mut pool, file.as_raw_fd(), 0), CUDA_SUCCESS);
    assert_eq!(cu!(cuMemAllocFromPoolAsync(&mut address, 8, pool, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuDeviceSetMemPool(0, pool)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        cu!(cuMemPoolImportPointer(&mut address, create(DESCRIPTOR), &handle)),
        CUDA_ERROR_INVALID_VALUE
    );
    let mut forged = handle;
    forged.0[12] ^= 0x55;
    assert_eq!(cu!(cuMemPoolImportPointer(&mut address, pool, &forged)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemPoolImportPointer(&mut address, pool, &handle));
    assert_eq!(read(address, BYTES), vec![42; BYTES]);
    let mine = alloc(4);
    ok!(cuMemsetD8_v2(mine, 43, 4));
    ok!(cuCtxSynchronize());
    assert_eq!(move_on(0, address + 8, mine), CUDA_SUCCESS);
    assert_eq!(move_on(1, address, address + 16), CUDA_ERROR_ILLEGAL_ADDRESS, "another device");
    ok!(cuMemPoolSetAccess(pool, &Description { location: on_device(1), flags: 3 }, 1));
    assert_eq!(move_on(1, address, address + 16), CUDA_SUCCESS);
    ok!(cuMemFreeAsync(address, 0));
    ok!(cuCtxSynchronize());
    assert_eq!(move_on(0, mine, address), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(move_on(1, address, address + 16), CUDA_ERROR_ILLEGAL_ADDRESS);
    ok!(cuMemPoolDestroy(pool));
    tell("done");
    told();
}

#[test]
fn another_process_has_a_pool_and_its_memory() {
    const NAME: &str = "another_process_has_a_pool_and_its_memory";
    if in_peer() {
        return other_process();
    }
    in_child(NAME, &[("SOFTCUDA_DEVICES", "2")], Stdio::null(), || {
        let _context = context();
        let mut file = -1;
        let own = create(0);
        let export = |file: &mut i32, pool, kind| {
            cu!(cuMemPoolExportToShareableHandle(std::ptr::from_mut(file).cast(), pool, kind, 0))
        };
        assert_eq!(export(&mut file, own, DESCRIPTOR), CUDA_ERROR_INVALID_VALUE, "not made for it");
        let mut handle = Ipc([0; 64]);
        assert_eq!(cu!(cuMemPoolExportPointer(&mut handle, take(own))), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuMemPoolExportPointer(&mut handle, alloc(8))), CUDA_ERROR_INVALID_VALUE);

        let pool = create(DESCRIPTOR);
        let memory = take(pool);
        ok!(cuMemsetD8_v2(memory, 42, BYTES));
        ok!(cuCtxSynchronize());
        assert_eq!(export(&mut file, pool, 2), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(export(&mut file, pool, DESCRIPTOR), CUDA_SUCCESS);
        ok!(cuMemPoolExportPointer(&mut handle, memory));
        assert_eq!(cu!(cuIpcOpenMemHandle_v2(&mut 0, handle, 1)), CUDA_ERROR_INVALID_HANDLE, "a pool's");
        let path = format!("/proc/{}/fd/{file}", std::process::id());
        let mut other = Peer::start(NAME, &[(HANDLE, &handle.to_text()), (FILE, &path)]);
        other.expect("done");
        // The second device copied a word that the first one had not written.
        assert_eq!(read(memory, 12), [42, 42, 42, 42, 42, 42, 42, 42, 43, 43, 43, 43]);
        other.say("end");
        other.end();
        ok!(cuMemFreeAsync(memory, 0));
        ok!(cuCtxSynchronize());
    });
}

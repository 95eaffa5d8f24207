//! Memory: allocation, copies, sets, what is known of addresses, and the errors of each.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use cudarc::driver::sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUmemorytype};
use std::ffi::c_void;

#[test]
fn wild_and_double_frees_and_sizes() {
    let _context = context();
    let mut address = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&mut address, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemAlloc_v2(std::ptr::null_mut(), 8)), CUDA_ERROR_INVALID_VALUE);
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert!(free <= total && total > 0);
    assert_eq!(cu!(cuMemAlloc_v2(&mut address, total * 4)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemFree_v2(0x1234)), CUDA_ERROR_INVALID_VALUE);
    let memory = alloc(100);
    assert_eq!(cu!(cuMemFree_v2(memory + 1)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemFree_v2(memory));
    assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemFree_v2(0));
}

#[test]
fn copies_stay_inside_their_allocations() {
    let _context = context();
    let memory = alloc(100);
    let bytes: Vec<u8> = (0..100).collect();
    ok!(cuMemcpyHtoD_v2(memory, bytes.as_ptr().cast(), 100));
    assert_eq!(cu!(cuMemcpyHtoD_v2(memory + 1, bytes.as_ptr().cast(), 100)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(0x10, bytes.as_ptr().cast(), 8)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(memory, std::ptr::null(), 8)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemcpyDtoD_v2(memory + 50, memory, 50));
    let mut got = vec![0u8; 100];
    ok!(cuMemcpy(got.as_mut_ptr().expose_provenance() as u64, memory, 100));
    assert_eq!(got[..50], bytes[..50]);
    assert_eq!(got[50..], bytes[..50]);
    ok!(cuMemcpyDtoH_v2(std::ptr::null_mut(), 0, 0));
    assert_eq!(cu!(cuMemsetD8_v2(memory, 1, 101)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD32_v2(memory + 2, 1, 1)), CUDA_ERROR_INVALID_VALUE, "not a multiple of 4");
    ok!(cuMemsetD32_v2(memory + 4, 0x0102_0304, 2));
    assert_eq!(read(memory + 3, 10), [3, 4, 3, 2, 1, 4, 3, 2, 1, 12]);
    let (mut base, mut size) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut base, &mut size, memory + 99));
    assert_eq!((base, size), (memory, 100));
    assert_eq!(cu!(cuMemGetAddressRange_v2(&mut base, &mut size, memory + 100)), CUDA_ERROR_NOT_FOUND);
}

#[test]
fn boxes() {
    let _context = context();
    let (mut memory, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&mut memory, &mut pitch, 10, 4, 4));
    assert!(pitch >= 10 && pitch.is_multiple_of(512));
    ok!(cuMemsetD2D16_v2(memory, pitch, 0x0505, 5, 4));
    let host: Vec<u8> = (0..40).collect();
    let mut copy = CUDA_MEMCPY2D::host();
    copy.srcHost = host.as_ptr().cast();
    copy.srcPitch = 10;
    copy.srcXInBytes = 2;
    copy.srcY = 1;
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = pitch;
    copy.dstXInBytes = 1;
    copy.WidthInBytes = 3;
    copy.Height = 2;
    ok!(cuMemcpy2D_v2(&copy));
    assert_eq!(read(memory, 10), [5, 12, 13, 14, 5, 5, 5, 5, 5, 5]);
    assert_eq!(read(memory + pitch as u64, 6), [5, 22, 23, 24, 5, 5]);
    copy.dstPitch = 3;
    assert_eq!(cu!(cuMemcpy2D_v2(&copy)), CUDA_ERROR_INVALID_VALUE, "rows longer than the pitch");
    copy.dstPitch = pitch;
    copy.Height = 5000;
    assert_eq!(cu!(cuMemcpy2D_v2(&copy)), CUDA_ERROR_INVALID_VALUE, "more rows than there are");

    let volume = alloc(60);
    ok!(cuMemsetD8_v2(volume, 0, 60));
    let mut copy = CUDA_MEMCPY3D::host();
    copy.srcHost = host.as_ptr().cast();
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = volume;
    (copy.dstPitch, copy.dstHeight, copy.dstZ) = (5, 4, 1);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (2, 2, 2);
    ok!(cuMemcpy3D_v2(&copy));
    let got = read(volume, 60);
    assert_eq!(
        (&got[20..22], &got[25..27], &got[40..42], &got[45..47]),
        (&[0, 1][..], &[2, 3][..], &[4, 5][..], &[6, 7][..])
    );
    assert_eq!(got.iter().filter(|b| **b != 0).count(), 7);
}

/// A zeroed copy structure would hold memory types that are none of the enumeration: both ends start as host.
trait Host {
    fn host() -> Self;
}

impl Host for CUDA_MEMCPY2D {
    fn host() -> Self {
        let none = std::ptr::null_mut::<c_void>();
        let kind = CUmemorytype::CU_MEMORYTYPE_HOST;
        CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: kind,
            srcHost: none,
            srcDevice: 0,
            srcArray: none.cast(),
            srcPitch: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: kind,
            dstHost: none,
            dstDevice: 0,
            dstArray: none.cast(),
            dstPitch: 0,
            WidthInBytes: 0,
            Height: 0,
        }
    }
}

impl Host for CUDA_MEMCPY3D {
    fn host() -> Self {
        let none = std::ptr::null_mut::<c_void>();
        let kind = CUmemorytype::CU_MEMORYTYPE_HOST;
        CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: kind,
            srcHost: none,
            srcDevice: 0,
            srcArray: none.cast(),
            reserved0: none,
            srcPitch: 0,
            srcHeight: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: kind,
            dstHost: none,
            dstDevice: 0,
            dstArray: none.cast(),
            reserved1: none,
            dstPitch: 0,
            dstHeight: 0,
            WidthInBytes: 0,
            Height: 0,
            Depth: 0,
        }
    }
}

#[test]
fn pinned_managed_and_registered_memory() {
    let _context = context();
    let mut pinned = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut pinned, 1000, 3));
    let mut device = 0;
    ok!(cuMemHostGetDevicePointer_v2(&mut device, pinned, 0));
    assert_eq!(device, pinned.addr() as u64);
    ok!(cuMemsetD8_v2(device, 6, 1000));
    ok!(cuCtxSynchronize());
    assert!(unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), 1000) }.iter().all(|b| *b == 6));
    assert_eq!(cu!(cuMemFree_v2(device)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemFreeHost(pinned));
    assert_eq!(cu!(cuMemFreeHost(pinned)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemHostGetDevicePointer_v2(&mut device, pinned, 0)), CUDA_ERROR_INVALID_VALUE);

    let mut own = vec![1u8; 10_000];
    let address = own.as_mut_ptr().cast::<c_void>();
    ok!(cuMemHostRegister_v2(address, 10_000, 0));
    assert_eq!(cu!(cuMemHostRegister_v2(address, 10_000, 0)), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ok!(cuMemcpyDtoD_v2(address.expose_provenance() as u64, address.addr() as u64 + 5000, 10));
    ok!(cuCtxSynchronize());
    ok!(cuMemHostUnregister(address));
    assert_eq!(cu!(cuMemHostUnregister(address)), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);

    let nowhere = std::ptr::without_provenance_mut::<c_void>(0x10_0000);
    assert_eq!(cu!(cuMemHostRegister_v2(nowhere, 10_000, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemHostRegister_v2(nowhere, usize::MAX, 0)), CUDA_ERROR_INVALID_VALUE);

    let mut managed = 0;
    assert_eq!(cu!(cuMemAllocManaged(&mut managed, 64, 0)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemAllocManaged(&mut managed, 64, 1));
    ok!(cuMemsetD8_v2(managed, 4, 64));
    ok!(cuCtxSynchronize());
    assert_eq!(unsafe { (managed as *const u8).add(63).read_volatile() }, 4);
    ok!(cuMemFree_v2(managed));
}

#[test]
fn pointer_attributes() {
    let context = context();
    let memory = alloc(100);
    let word = |id, address| {
        let mut value = 0u64;
        (cu!(cuPointerGetAttribute((&raw mut value).cast(), id, address)), value)
    };
    assert_eq!(word(1, memory), (CUDA_SUCCESS, context.0 as u64));
    assert_eq!(word(2, memory + 5), (CUDA_SUCCESS, 2));
    assert_eq!(word(3, memory + 5), (CUDA_SUCCESS, memory + 5));
    assert_eq!(word(4, memory).0, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(word(11, memory + 5), (CUDA_SUCCESS, memory));
    assert_eq!(word(12, memory + 5), (CUDA_SUCCESS, 100));
    assert_eq!(word(99, memory).0, CUDA_ERROR_INVALID_VALUE);
    let local = 0u8;
    let unknown = std::ptr::from_ref(&local).addr() as u64;
    assert_eq!(word(2, unknown).0, CUDA_ERROR_INVALID_VALUE);
    let (mut kind, mut ordinal) = (9u32, 9i32);
    let mut ids = [2, 9];
    let mut places = [(&raw mut kind).cast::<c_void>(), (&raw mut ordinal).cast()];
    ok!(cuPointerGetAttributes(2, ids.as_mut_ptr(), places.as_mut_ptr(), unknown));
    assert_eq!((kind, ordinal), (0, -2));
    ok!(cuPointerGetAttributes(2, ids.as_mut_ptr(), places.as_mut_ptr(), memory));
    assert_eq!((kind, ordinal), (2, 0));
}

/// One thread's last release, or a reset, ends the context that was, and never the one that another thread's retain makes.
#[test]
fn threads_retain_and_release_the_primary_context_at_once() {
    context();
    let work = |round: u32| {
        let mut handle = 0;
        ok!(cuDevicePrimaryCtxRetain(&mut handle, 0));
        ok!(cuCtxSetCurrent(handle));
        let mut address = 0;
        let code = cu!(cuMemAlloc_v2(&mut address, 64));
        assert_eq!(code, CUDA_SUCCESS, "round {round}: it is retained");
        assert_eq!(cu!(cuMemFree_v2(address)), CUDA_SUCCESS, "round {round}");
        ok!(cuDevicePrimaryCtxRelease_v2(0));
    };
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..4).map(|_| s.spawn(move || (0..100_000).for_each(work))).collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Pages that may only be read are registered only if the flags say so, and a kernel's store there is a fault.
#[test]
fn read_only_pages_are_read_only_for_kernels_and_copies() {
    let _context = context();
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let pages = unsafe { libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ, kind, -1, 0) };
    let address = pages.expose_provenance() as u64;
    assert_eq!(cu!(cuMemHostRegister_v2(pages, 8192, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemHostRegister_v2(pages, 8192, 4)), CUDA_ERROR_NOT_SUPPORTED, "I/O memory");
    assert_eq!(cu!(cuMemHostRegister_v2(pages, 8192, 16)), CUDA_ERROR_INVALID_VALUE, "no such flag");
    ok!(cuMemHostRegister_v2(pages, 8192, 8));
    let memory = alloc(64);
    ok!(cuMemsetD8_v2(memory, 9, 64));
    assert_eq!(move_on(0, memory, address), CUDA_SUCCESS);
    assert_eq!(read(memory, 5), [0, 0, 0, 0, 9]);
    assert_eq!(move_on(0, address, memory), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuMemcpyDtoH_v2(pages, memory, 8)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemHostUnregister(pages));
    assert_eq!(move_on(0, memory, address), CUDA_ERROR_ILLEGAL_ADDRESS);
    unsafe { libc::munmap(pages, 8192) };
}

/// Memory that the program unmaps without saying so is 700 for a kernel that comes later, and does not end the process.
#[test]
fn registered_memory_that_is_unmapped_is_no_longer_there_for_kernels() {
    let _context = context();
    let memory = alloc(64);
    for bytes in [8192, 1 << 20] {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let pages = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        let last = pages.expose_provenance() as u64 + bytes as u64 - 4;
        ok!(cuMemHostRegister_v2(pages, bytes, 0));
        assert_eq!(move_on(0, last, memory), CUDA_SUCCESS);
        assert_eq!(unsafe { libc::munmap(pages.byte_add(bytes - 4096), 4096) }, 0);
        assert_eq!(move_on(0, memory, last), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(move_on(0, last, memory), CUDA_ERROR_ILLEGAL_ADDRESS);
        ok!(cuMemHostUnregister(pages));
        unsafe { libc::munmap(pages, bytes - 4096) };
    }
}

/// Memory that the program protects, or takes away and puts other memory at the same place, is not what it gave to kernels.
#[test]
fn registered_memory_that_is_protected_or_replaced_is_no_longer_there() {
    let _context = context();
    let (memory, bytes) = (alloc(64), 64 << 10);
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let gone: [fn(*mut c_void, usize); 4] = [
        |pages, bytes| assert_eq!(unsafe { libc::mprotect(pages, bytes, libc::PROT_NONE) }, 0),
        |pages, bytes| assert_eq!(unsafe { libc::mprotect(pages, bytes, libc::PROT_READ) }, 0),
        |pages, bytes| unsafe {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            assert_eq!(libc::mmap(pages, bytes, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0), pages);
        },
        |pages, bytes| unsafe {
            let file = libc::memfd_create(c"other".as_ptr(), 0);
            assert_eq!(libc::ftruncate(file, bytes as i64), 0);
            let kind = libc::MAP_SHARED | libc::MAP_FIXED;
            assert_eq!(libc::mmap(pages, bytes, libc::PROT_READ | libc::PROT_WRITE, kind, file, 0), pages);
            libc::close(file);
        },
    ];
    let gone = if mappings_are_told() { &gone[..] } else { &gone[2..3] };
    for (number, take_away) in gone.iter().enumerate() {
        let pages = unsafe { libc::mmap(std::ptr::null_mut(), bytes, both, kind, -1, 0) };
        let address = pages.expose_provenance() as u64;
        ok!(cuMemHostRegister_v2(pages, bytes, 0));
        assert_eq!(move_on(0, address + 4096, memory), CUDA_SUCCESS);
        ok!(cuMemcpyDtoH_v2(pages, memory, 64));
        take_away(pages, bytes);
        assert_eq!(move_on(0, address + 4096, memory), CUDA_ERROR_ILLEGAL_ADDRESS, "{number}");
        assert_eq!(cu!(cuMemcpyDtoH_v2(pages, memory, 64)), CUDA_ERROR_INVALID_VALUE, "{number}");
        assert_eq!(cu!(cuMemsetD8_v2(address, 1, 64)), CUDA_ERROR_INVALID_VALUE, "{number}");
        ok!(cuMemHostUnregister(pages));
        // Registered anew it is the program's again, whatever it is now, if it can be written.
        if number >= 2 || !mappings_are_told() {
            ok!(cuMemHostRegister_v2(pages, bytes, 0));
            assert_eq!(move_on(0, address + 4096, memory), CUDA_SUCCESS, "{number}");
            ok!(cuMemHostUnregister(pages));
        }
        unsafe { libc::munmap(pages, bytes) };
    }
}

/// A copy from or to memory that the program does not have is an error, not the program's end.
#[test]
fn copies_with_wild_host_pointers_are_refused() {
    if !mappings_are_told() {
        return;
    }
    let _context = context();
    let memory = alloc(1 << 20);
    let (bytes, page) = (16 << 12, 1 << 12);
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let pages = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, kind, -1, 0) };
    unsafe { libc::munmap(pages.byte_add(8 * page), 8 * page) };
    let (there, gone) = (pages, unsafe { pages.byte_add(8 * page) });
    let stream = stream(0);
    ok!(cuMemcpyHtoD_v2(memory, there, 8 * page));
    for wild in [gone, std::ptr::without_provenance_mut(16), std::ptr::without_provenance_mut(1 << 62)] {
        assert_eq!(cu!(cuMemcpyHtoD_v2(memory, wild, 64)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuMemcpyDtoH_v2(wild, memory, 64)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuMemcpyHtoDAsync_v2(memory, wild, 64, stream)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuMemcpy(memory, wild.addr() as u64, 64)), CUDA_ERROR_INVALID_VALUE);
    }
    assert_eq!(
        cu!(cuMemcpyHtoD_v2(memory, there, 8 * page + 1)),
        CUDA_ERROR_INVALID_VALUE,
        "one byte too many"
    );
    assert_eq!(cu!(cuMemcpyDtoH_v2(there, memory, 8)), CUDA_ERROR_INVALID_VALUE, "it can only be read");
    let kernel_text = copies_with_wild_host_pointers_are_refused as *const () as *mut c_void;
    assert_eq!(cu!(cuMemcpyDtoH_v2(kernel_text, memory, 8)), CUDA_ERROR_INVALID_VALUE, "the program's code");
    ok!(cuStreamSynchronize(stream));
    unsafe { libc::munmap(pages, 8 * page) };
}

#[test]
fn two_registrations_on_one_page() {
    let _context = context();
    let mut page = vec![0u32; 1024];
    let (first, second) =
        (page.as_mut_ptr().cast::<c_void>(), unsafe { page.as_mut_ptr().add(512) }.cast::<c_void>());
    ok!(cuMemHostRegister_v2(first, 1024, 0));
    ok!(cuMemHostRegister_v2(second, 1024, 0));
    let (a, b) = (first.expose_provenance() as u64, second.expose_provenance() as u64);
    unsafe { page.as_mut_ptr().add(512).write_volatile(5) };
    assert_eq!(move_on(0, a, b), CUDA_SUCCESS);
    assert_eq!(unsafe { page.as_ptr().read_volatile() }, 5);
    assert_eq!(move_on(0, a + 1024, b), CUDA_ERROR_ILLEGAL_ADDRESS, "between them");
    ok!(cuMemHostUnregister(first));
    assert_eq!(move_on(0, a, b), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(move_on(0, b + 4, b), CUDA_SUCCESS);
    assert_eq!(cu!(cuMemHostUnregister(first)), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    ok!(cuMemHostUnregister(second));
}

#[test]
fn flags_of_pinned_memory_and_operations_that_are_synchronous() {
    let _context = context();
    let mut pinned = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut pinned, 100, 4));
    let mut flags = 0;
    ok!(cuMemHostGetFlags(&mut flags, pinned));
    assert_eq!(flags, 6, "write-combined, and mapped as all memory is");
    let memory = alloc(100);
    let inside = std::ptr::without_provenance_mut(memory as usize);
    assert_eq!(cu!(cuMemHostGetFlags(&mut flags, inside)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemHostAlloc(&mut pinned, 100, 8)), CUDA_ERROR_INVALID_VALUE);
    let one = 1u32;
    let value = (&raw const one).cast::<c_void>();
    ok!(cuPointerSetAttribute(value, 6, memory));
    let mut got = 0u32;
    ok!(cuPointerGetAttribute((&raw mut got).cast(), 6, memory + 50));
    assert_eq!(got, 1);
    assert_eq!(cu!(cuPointerSetAttribute(value, 2, memory)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuPointerSetAttribute(value, 6, 0x1234)), CUDA_ERROR_INVALID_VALUE);
}

/// Kernels that read or write where nothing is theirs: the stack, the heap, code, the driver, anywhere. Each is 700, and
/// nothing of the process changes.
#[test]
fn wild_addresses_are_faults() {
    let _context = context();
    let memory = alloc(64);
    let stack = [0x5a5a_5a5au32; 64];
    let heap = vec![0x5a5a_5a5au32; 64];
    let code = wild_addresses_are_faults as *const () as u64;
    let driver = api().cuInit as *const () as u64;
    let mut wild = vec![0, 4, 4096, 1 << 40, (1 << 47) - 4, 1 << 47, 1 << 63, u64::MAX - 3];
    wild.extend([stack.as_ptr().addr() as u64, heap.as_ptr().addr() as u64, code & !3, driver & !3]);
    // An xorshift generator: anywhere in the 47 bits, and beyond.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for i in 0..100 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        wild.push((if i % 4 == 0 { state } else { state >> 17 }) & !3);
    }
    for address in wild {
        assert_eq!(move_on(0, memory, address), CUDA_ERROR_ILLEGAL_ADDRESS, "read at {address:#x}");
        assert_eq!(move_on(0, address, memory), CUDA_ERROR_ILLEGAL_ADDRESS, "write at {address:#x}");
    }
    assert!(
        std::hint::black_box(&stack)
            .iter()
            .chain(std::hint::black_box(&heap))
            .all(|word| *word == 0x5a5a_5a5a)
    );
    assert_eq!(move_on(0, memory, memory + 4), CUDA_SUCCESS);
}

/// A kernel an access, by all threads at neighbouring addresses.
const WARPS: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry load(.param .u64 at) { .reg .b64 q, w; .reg .b32 t, v<4>; .reg .pred p; ld.param.u64 q, [at]; mov.u32 t, %tid.x;
    mul.wide.u32 w, t, 16; add.u64 q, q, w; ld.global.v4.u32 {v0, v1, v2, v3}, [q]; setp.eq.u32 p, v0, 77; @p st.global.u32 [q], v1; ret; }
.visible .entry store(.param .u64 at) { .reg .b64 q, w; .reg .b32 t; ld.param.u64 q, [at]; mov.u32 t, %tid.x;
    mul.wide.u32 w, t, 16; add.u64 q, q, w; st.global.v2.u64 [q], {w, w}; ret; }
.visible .entry add(.param .u64 at) { .reg .b64 q, w; .reg .b32 t; ld.param.u64 q, [at]; mov.u32 t, %tid.x;
    mul.wide.u32 w, t, 4; add.u64 q, q, w; red.global.add.u32 [q], 7; ret; }
.visible .entry both(.param .u64 at) { .reg .b64 q, w; .reg .b32 t, v; ld.param.u64 q, [at]; mov.u32 t, %tid.x;
    mul.wide.u32 w, t, 4; add.u64 q, q, w; ld.global.u32 v, [q]; st.volatile.global.u32 [q], 7; ret; }
";

/// As `wild_addresses_are_faults`, by whole warps; also where the device's memory was given back, and where none ever was.
#[test]
fn wild_addresses_of_whole_warps_are_faults() {
    let _context = context();
    let freed = alloc(64 << 20);
    let behind = alloc(1 << 20);
    ok!(cuMemFree_v2(freed));
    let stack = [0x5a5a_5a5au32; 1024];
    let heap = vec![0x5a5a_5a5au32; 1024];
    let code = wild_addresses_of_whole_warps_are_faults as *const () as u64;
    let mut wild = vec![0, 4096, 1 << 40, (1 << 47) - 256, 1 << 47, 1 << 63, u64::MAX - 4095];
    wild.extend([stack.as_ptr().addr() as u64, heap.as_ptr().addr() as u64, code].map(|a| a & !15));
    // The beginning may be what the driver itself takes next.
    wild.extend([
        freed + (32 << 20),
        freed + (48 << 20) + 4096,
        behind + (1 << 36),
        behind + (1 << 38) + 4096,
    ]);
    let run = |name: &str, address: u64, block: u32| {
        let mut context = 0;
        ok!(cuCtxCreate_v2(&mut context, 0, 0));
        let context = Context(context);
        let function = function(module(WARPS), name);
        assert_eq!(launch(function, 1, block, 0, &[address]), CUDA_SUCCESS);
        let result = cu!(cuCtxSynchronize());
        drop(context);
        result
    };
    for name in ["load", "store", "add", "both"] {
        for block in [32, 256] {
            for address in &wild {
                assert_eq!(
                    run(name, *address, block),
                    CUDA_ERROR_ILLEGAL_ADDRESS,
                    "{name} at {address:#x}, {block} threads"
                );
            }
            assert_eq!(run(name, behind, block), CUDA_SUCCESS, "{name}, {block} threads");
        }
    }
    let all = std::hint::black_box(&stack).iter().chain(std::hint::black_box(&heap));
    assert!(all.into_iter().all(|word| *word == 0x5a5a_5a5a));
}

#[test]
fn device_memory_is_at_other_addresses_if_that_is_asked_for() {
    const NAME: &str = "device_memory_is_at_other_addresses_if_that_is_asked_for";
    in_child(NAME, &[("SOFTCUDA_ADDRESSES", "others")], std::process::Stdio::null(), || {
        let _context = context();
        let (small, large) = (alloc(4), alloc(8 << 20));
        // Usual are those from 2 TiB on, for 16 devices.
        let usual = 0x0200_0000_0000..0x0200_0000_0000u64 + (16 << 40);
        assert!(!usual.contains(&small) && !usual.contains(&large), "{small:#x} {large:#x}");
        ok!(cuMemsetD32_v2(large, 7, 1));
        assert_eq!(move_on(0, small, large), CUDA_SUCCESS);
        assert_eq!(read(small, 4), [7, 0, 0, 0]);
    });
}

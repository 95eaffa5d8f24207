//! Virtual memory management: ranges, memory, mappings and access, by kernels, copies and another process.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Stdio;

const MIB: usize = 1 << 20;
const UNIT: usize = 2 * MIB;

fn properties(handles: u32) -> Properties {
    Properties { kind: 1, handles, location: on_device(0), windows: 0, flags: 0 }
}

fn reserve(size: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemAddressReserve(&mut address, size, 0, 0, 0));
    address
}

fn create(size: usize, handles: u32) -> u64 {
    let mut memory = 0;
    ok!(cuMemCreate(&mut memory, size, &properties(handles), 0));
    memory
}

fn access(address: u64, size: usize, flags: u32) -> CUresult {
    cu!(cuMemSetAccess(address, size, &Description { location: on_device(0), flags }, 1))
}

fn used() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    total - free
}

#[test]
fn memory_is_mapped_used_and_gone() {
    let _context = context();
    let mut granularity = 0;
    ok!(cuMemGetAllocationGranularity(&mut granularity, &properties(0), 0));
    assert_eq!(granularity, UNIT);
    let range = reserve(4 * UNIT);
    assert!(range.is_multiple_of(UNIT as u64) && range >> 47 == 0);
    let (first, second) = (create(UNIT, 0), create(2 * UNIT, 0));
    ok!(cuMemMap(range, UNIT, 0, first, 0));
    ok!(cuMemMap(range + UNIT as u64, 2 * UNIT, 0, second, 0));
    assert_eq!(cu!(cuMemMap(range, UNIT, 0, second, 0)), CUDA_ERROR_INVALID_VALUE, "mapped already");
    assert_eq!(
        cu!(cuMemMap(range + 4 * UNIT as u64, UNIT, 0, first, 0)),
        CUDA_ERROR_INVALID_VALUE,
        "outside"
    );
    assert_eq!(
        cu!(cuMemMap(range + 3 * UNIT as u64, UNIT, UNIT, first, 0)),
        CUDA_ERROR_INVALID_VALUE,
        "too little"
    );
    assert_eq!(cu!(cuMemsetD8_v2(range, 1, 8)), CUDA_ERROR_INVALID_VALUE, "no access yet");
    assert_eq!(access(range, 4 * UNIT, 3), CUDA_ERROR_INVALID_VALUE, "not all of it is mapped");
    assert_eq!(access(range, 3 * UNIT, 3), CUDA_SUCCESS);
    let mut flags = 0;
    ok!(cuMemGetAccess(&mut flags, &on_device(0), range + 5));
    assert_eq!(flags, 3);
    // Over the border of the two.
    let border = range + UNIT as u64;
    ok!(cuMemsetD8_v2(border - 100, 7, 200));
    assert_eq!(read(border - 100, 200), [7; 200]);
    assert_eq!(cu!(cuMemsetD8_v2(border + 2 * UNIT as u64 - 1, 7, 2)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(move_on(0, border + 400, border - 4), CUDA_SUCCESS);
    assert_eq!(read(border + 400, 4), [7; 4]);

    // The same memory at a second place.
    ok!(cuMemMap(range + 3 * UNIT as u64, UNIT, 0, first, 0));
    assert_eq!(access(range + 3 * UNIT as u64, UNIT, 3), CUDA_SUCCESS);
    assert_eq!(read(range + 4 * UNIT as u64 - 100, 100), [7; 100]);

    assert_eq!(cu!(cuMemUnmap(range + UNIT as u64, UNIT)), CUDA_ERROR_INVALID_VALUE, "half of a mapping");
    assert_eq!(cu!(cuMemAddressFree(range, 4 * UNIT)), CUDA_ERROR_INVALID_VALUE, "mapped");
    ok!(cuMemUnmap(range, 4 * UNIT));
    assert_eq!(cu!(cuMemsetD8_v2(range, 1, 8)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(range)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemAddressFree(range, UNIT)), CUDA_ERROR_INVALID_VALUE, "not all of it");
    ok!(cuMemAddressFree(range, 4 * UNIT));
    assert_eq!(cu!(cuMemAddressFree(range, 4 * UNIT)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemRelease(first));
    ok!(cuMemRelease(second));
    assert_eq!(cu!(cuMemRelease(second)), CUDA_ERROR_INVALID_VALUE);
}

fn map(memory: u64, place: u64, offset: usize, size: usize) {
    ok!(cuMemMap(place, size, offset, memory, 0));
    assert_eq!(access(place, size, 3), CUDA_SUCCESS);
}

/// The manual's sections of cuMemMap and cuMemUnmap: what is created is memory apart from addresses.
#[test]
fn bytes_stay_with_the_memory_wherever_it_is_mapped() {
    let _context = context();
    let unit = UNIT as u64;
    let (range, memory) = (reserve(8 * UNIT), create(2 * UNIT, 0));
    map(memory, range, 0, 2 * UNIT);
    ok!(cuMemsetD8_v2(range + 3, 1, 2 * UNIT - 3));
    ok!(cuMemUnmap(range, 2 * UNIT));
    map(memory, range + 2 * unit, 0, 2 * UNIT);
    assert_eq!(read(range + 2 * unit, 5), [0, 0, 0, 1, 1], "moved, as a whole");
    ok!(cuMemUnmap(range + 2 * unit, 2 * UNIT));
    map(memory, range + unit, UNIT, UNIT);
    assert_eq!(read(range + 2 * unit - 2, 2), [1, 1], "its second half, after it was mapped as a whole");
    map(memory, range + 4 * unit, 0, 2 * UNIT);
    ok!(cuMemsetD8_v2(range + 5 * unit, 2, 4));
    assert_eq!(read(range + unit, 5), [2, 2, 2, 2, 1], "one memory, two places");
    assert_eq!(read(range + 4 * unit, 5), [0, 0, 0, 1, 1]);
    ok!(cuMemUnmap(range + unit, UNIT));
    ok!(cuMemUnmap(range + 4 * unit, 2 * UNIT));
    map(memory, range, 0, 2 * UNIT);
    assert_eq!(read(range + unit, 5), [2, 2, 2, 2, 1]);
    // A place that had memory and gets other memory shows none of the old bytes.
    let other = create(2 * UNIT, 0);
    ok!(cuMemUnmap(range, 2 * UNIT));
    map(other, range, 0, 2 * UNIT);
    assert_eq!(read(range + unit, 5), [0; 5]);
    ok!(cuMemUnmap(range, 2 * UNIT));
    ok!(cuMemRelease(memory));
    ok!(cuMemRelease(other));
    ok!(cuMemAddressFree(range, 8 * UNIT));
}

/// Copies that are under way while memory becomes memory with two places must not lose a byte. In a process of its own:
/// ranges that other tests give back are free only when nothing is copied.
#[test]
fn a_second_place_comes_between_two_copies() {
    in_child("a_second_place_comes_between_two_copies", &[], Stdio::null(), || {
        let _context = context();
        let range = reserve(64 * UNIT);
        let places: Vec<u64> = (0..32).map(|i| range + 2 * i * UNIT as u64).collect();
        let memories: Vec<u64> = places.iter().map(|_| create(UNIT, 0)).collect();
        for (memory, place) in memories.iter().zip(&places) {
            map(*memory, *place, 0, UNIT);
        }
        let mut current = 0;
        ok!(cuCtxGetCurrent(&mut current));
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                ok!(cuCtxSetCurrent(current));
                let mut count = 0u32;
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    count += 1;
                    for place in &places {
                        ok!(cuMemcpyHtoD_v2(*place, (&raw const count).cast(), 4));
                        assert_eq!(read(*place, 4), count.to_le_bytes());
                    }
                }
                count
            });
            for (memory, place) in memories.iter().zip(&places) {
                map(*memory, *place + UNIT as u64, 0, UNIT);
            }
            done.store(true, std::sync::atomic::Ordering::Release);
            let last = writer.join().unwrap().to_le_bytes();
            places.iter().for_each(|place| assert_eq!(read(*place + UNIT as u64, 4), last));
        });
        ok!(cuMemUnmap(range, 64 * UNIT));
        memories.iter().for_each(|memory| ok!(cuMemRelease(*memory)));
        ok!(cuMemAddressFree(range, 64 * UNIT));
    });
}

/// Kernels that stream through memory take a twentieth longer on small pages. The system marks what was advised with "hg".
#[test]
fn memory_that_one_process_uses_may_have_huge_pages() {
    let _context = context();
    let (range, memory) = (reserve(2 * UNIT), create(2 * UNIT, 0));
    map(memory, range, 0, 2 * UNIT);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, mut flags) = (false, None);
    for line in maps.lines() {
        let bounds = line.split(' ').next().and_then(|first| first.split_once('-'));
        if let Some((first, end)) = bounds
            && let (Ok(first), Ok(end)) = (u64::from_str_radix(first, 16), u64::from_str_radix(end, 16))
        {
            inside = (first..end).contains(&range);
        } else if inside && let Some(all) = line.strip_prefix("VmFlags:") {
            flags = Some(all.to_owned());
        }
    }
    let flags = flags.expect("its mapping is among the process's");
    assert!(flags.split(' ').any(|flag| flag == "hg"), "{flags}");
    ok!(cuMemUnmap(range, 2 * UNIT));
    ok!(cuMemRelease(memory));
    ok!(cuMemAddressFree(range, 2 * UNIT));
}

#[test]
fn a_kernel_touches_only_what_is_open_to_it() {
    let _context = context();
    let out = alloc(4);
    let range = reserve(UNIT);
    assert_eq!(move_on(0, out, range), CUDA_ERROR_ILLEGAL_ADDRESS, "reserved only");
    let memory = create(UNIT, 0);
    ok!(cuMemMap(range, UNIT, 0, memory, 0));
    assert_eq!(move_on(0, out, range), CUDA_ERROR_ILLEGAL_ADDRESS, "no access");
    assert_eq!(access(range, UNIT, 3), CUDA_SUCCESS);
    ok!(cuMemsetD32_v2(range, 0x1234, 1));
    assert_eq!(access(range, UNIT, 1), CUDA_SUCCESS);
    assert_eq!(move_on(0, out, range), CUDA_SUCCESS);
    assert_eq!(read(out, 4), [0x34, 0x12, 0, 0]);
    assert_eq!(move_on(0, range, out), CUDA_ERROR_ILLEGAL_ADDRESS, "read only");
    assert_eq!(cu!(cuMemsetD8_v2(range, 1, 8)), CUDA_ERROR_INVALID_VALUE, "read only");
    assert_eq!(access(range, UNIT, 0), CUDA_SUCCESS);
    assert_eq!(move_on(0, out, range), CUDA_ERROR_ILLEGAL_ADDRESS, "access was taken away");
    assert_eq!(access(range, UNIT, 2), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(access(range, UNIT, 3), CUDA_SUCCESS);
    ok!(cuMemUnmap(range, UNIT));
    assert_eq!(move_on(0, out, range), CUDA_ERROR_ILLEGAL_ADDRESS, "unmapped");
    ok!(cuMemAddressFree(range, UNIT));
    assert_eq!(move_on(0, out, range), CUDA_ERROR_ILLEGAL_ADDRESS, "freed");
    ok!(cuMemRelease(memory));
}

#[test]
fn hints_anywhere_below_47_bits_are_honoured_when_free() {
    let _context = context();
    for hint in [0x0000_6000_0000_0000u64, 0x0000_1234_5600_0000, 0x0000_0008_0000_0000] {
        let mut address = 0;
        ok!(cuMemAddressReserve(&mut address, UNIT, 0, hint, 0));
        assert_eq!(address, hint);
        let memory = create(UNIT, 0);
        ok!(cuMemMap(address, UNIT, 0, memory, 0));
        assert_eq!(access(address, UNIT, 3), CUDA_SUCCESS);
        ok!(cuMemsetD8_v2(address, 3, UNIT));
        assert_eq!(move_on(0, address, address + 64), CUDA_SUCCESS);
        let mut other = 0;
        ok!(cuMemAddressReserve(&mut other, UNIT, 0, hint, 0));
        assert_ne!(other, hint, "taken");
        ok!(cuMemAddressFree(other, UNIT));
        ok!(cuMemUnmap(address, UNIT));
        ok!(cuMemAddressFree(address, UNIT));
        ok!(cuMemRelease(memory));
        ok!(cuMemAddressReserve(&mut other, UNIT, 0, hint, 0));
        assert_eq!(other, hint, "free again");
        ok!(cuMemAddressFree(other, UNIT));
    }
    let mut address = 0;
    ok!(cuMemAddressReserve(&mut address, UNIT, 1 << 30, 0, 0));
    assert!(address.is_multiple_of(1 << 30));
    ok!(cuMemAddressFree(address, UNIT));
    for (size, alignment, hint, flags) in
        [(0, 0, 0, 0), (100, 0, 0, 0), (UNIT, 3, 0, 0), (UNIT, 0, 1, 0), (UNIT, 0, 0, 1)]
    {
        let code = cu!(cuMemAddressReserve(&mut address, size, alignment, hint, flags));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{size} {alignment} {hint} {flags}");
    }
}

#[test]
fn handles_are_counted_and_describe_themselves() {
    let _context = context();
    let memory = create(UNIT, 1);
    let mut told = properties(9);
    ok!(cuMemGetAllocationPropertiesFromHandle(&mut told, memory));
    assert_eq!(told, properties(1));
    let range = reserve(UNIT);
    ok!(cuMemMap(range, UNIT, 0, memory, 0));
    ok!(cuMemRelease(memory));
    assert_eq!(cu!(cuMemGetAllocationPropertiesFromHandle(&mut told, memory)), CUDA_ERROR_INVALID_VALUE);
    let mut again = 0;
    let inside = std::ptr::without_provenance_mut::<c_void>(range as usize + 77);
    ok!(cuMemRetainAllocationHandle(&mut again, inside));
    ok!(cuMemGetAllocationPropertiesFromHandle(&mut told, again));
    ok!(cuMemUnmap(range, UNIT));
    assert_eq!(cu!(cuMemRetainAllocationHandle(&mut again, inside)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemMap(range, UNIT, 0, again, 0));
    ok!(cuMemUnmap(range, UNIT));
    ok!(cuMemRelease(again));
    ok!(cuMemAddressFree(range, UNIT));
    let mut none = 0;
    for (bad, code) in [
        (Properties { kind: 0, ..properties(0) }, CUDA_ERROR_INVALID_VALUE),
        (Properties { location: Location { kind: 9, id: 0 }, ..properties(0) }, CUDA_ERROR_INVALID_VALUE),
        (Properties { location: on_device(99), ..properties(0) }, CUDA_ERROR_INVALID_DEVICE),
        (properties(16), CUDA_ERROR_INVALID_VALUE),
        (properties(8), CUDA_ERROR_NOT_SUPPORTED),
    ] {
        assert_eq!(cu!(cuMemCreate(&mut none, UNIT, &bad, 0)), code, "{bad:?}");
    }
    assert_eq!(cu!(cuMemCreate(&mut none, MIB, &properties(0), 0)), CUDA_ERROR_INVALID_VALUE);
}

/// In a process of its own, for it needs all of the device's memory.
#[test]
fn the_budget_is_exact() {
    in_child("the_budget_is_exact", &[("SOFTCUDA_MEMORY", "64M")], Stdio::null(), || {
        let _context = context();
        assert_eq!(used(), 0);
        let mut memory = Vec::new();
        for _ in 0..32 {
            memory.push(create(UNIT, 0));
        }
        assert_eq!(used(), 64 * MIB);
        let mut none = 0;
        assert_eq!(cu!(cuMemCreate(&mut none, UNIT, &properties(0), 0)), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(cu!(cuMemAlloc_v2(&mut none, 1)), CUDA_ERROR_OUT_OF_MEMORY);
        let range = reserve(UNIT);
        ok!(cuMemMap(range, UNIT, 0, memory[0], 0));
        ok!(cuMemRelease(memory[0]));
        assert_eq!(used(), 64 * MIB, "mapped memory stays");
        ok!(cuMemUnmap(range, UNIT));
        assert_eq!(used(), 62 * MIB);
        assert_ne!(alloc(UNIT), 0);
    });
}

/// Another process reads what this one wrote, and the other way round.
#[test]
fn a_file_descriptor_carries_memory_to_another_process() {
    const NAME: &str = "a_file_descriptor_carries_memory_to_another_process";
    let child = || {
        let _context = context();
        let mut memory = 0;
        ok!(cuMemImportFromShareableHandle(&mut memory, std::ptr::null_mut(), 1));
        let range = reserve(UNIT);
        ok!(cuMemMap(range, UNIT, 0, memory, 0));
        assert_eq!(access(range, UNIT, 3), CUDA_SUCCESS);
        assert_eq!(read(range + 5, 3), [42; 3]);
        ok!(cuMemsetD8_v2(range, 43, 8));
        ok!(cuCtxSynchronize());
        let pipe = std::io::pipe().expect("a pipe");
        let code = cu!(cuMemImportFromShareableHandle(
            &mut memory,
            std::os::fd::AsRawFd::as_raw_fd(&pipe.0) as usize as *mut c_void,
            1
        ));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "no memory of a device");
    };
    if std::env::var_os("SOFTCUDA_TEST_CHILD").is_some() {
        return child();
    }
    let _context = context();
    let memory = create(UNIT, 1);
    let range = reserve(UNIT);
    ok!(cuMemMap(range, UNIT, 0, memory, 0));
    assert_eq!(access(range, UNIT, 3), CUDA_SUCCESS);
    ok!(cuMemsetD8_v2(range, 42, 8));
    ok!(cuCtxSynchronize());
    let private = create(UNIT, 0);
    let mut file = 0i32;
    assert_eq!(
        cu!(cuMemExportToShareableHandle((&raw mut file).cast(), private, 1, 0)),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(cuMemExportToShareableHandle((&raw mut file).cast(), memory, 1, 0));
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    in_child(NAME, &[], Stdio::from(file), || ());
    assert_eq!(read(range, 9), [43, 43, 43, 43, 43, 43, 43, 43, 0]);
}

#[test]
fn a_switch_refuses_hints() {
    in_child("a_switch_refuses_hints", &[("SOFTCUDA_VMM_HINT", "refuse")], Stdio::null(), || {
        let mut address = 0;
        api();
        ok!(cuMemAddressReserve(&mut address, UNIT, 0, 0x6000_0000_0000, 0));
        assert_ne!(address, 0x6000_0000_0000);
    });
}

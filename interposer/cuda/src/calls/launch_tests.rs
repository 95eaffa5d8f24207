//! Packing and checks of launches.

use super::*;
use cudarc::driver::sys::{CUlaunchAttribute, CUlaunchConfig};
use std::ptr::{from_mut, null_mut};

const LIMITS: Limits = Limits {
    threads: 1024,
    block: [1024, 1024, 64],
    grid: [i32::MAX as u32, 65535, 65535],
    cooperative: false,
    multiprocessors: 1,
};

fn kernel(params: &[(u32, u32)], most_threads: i32) -> Kernel {
    let block = params.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
    Kernel { name: c"k", params: params.to_vec(), block, attributes: vec![most_threads] }
}

fn launch(grid: [u32; 3], block: [u32; 3]) -> Launch<'static> {
    let (function, stream) = (Raw::NULL, Raw::NULL);
    Launch { function, grid, block, dynamic_shared: 0, stream, cooperative: false, attributes: &[] }
}

fn null<T>() -> Ptr<T> {
    Ptr::of_argument(null_mut())
}

#[test]
fn extents_are_checked_with_cuda_s_codes() {
    let k = kernel(&[], 512);
    for (grid, block, want) in [
        ([1, 1, 1], [512, 1, 1], Ok(())),
        ([0, 1, 1], [1, 1, 1], Err(INVALID_VALUE)),
        ([1, 1, 1], [1, 0, 1], Err(INVALID_VALUE)),
        ([1, 65536, 1], [1, 1, 1], Err(INVALID_VALUE)),
        ([1, 1, 1], [4096, 1, 1], Err(INVALID_VALUE)),
        ([1, 1, 1], [1, 1, 65], Err(INVALID_VALUE)),
        ([1, 1, 1], [1024, 1024, 64], Err(INVALID_VALUE)),
        ([1, 1, 1], [1024, 1, 1], Err(LAUNCH_OUT_OF_RESOURCES)),
        ([1, 1, 1], [513, 1, 1], Err(LAUNCH_OUT_OF_RESOURCES)),
    ] {
        let launch = launch(grid, block);
        let got = if possible(&LIMITS, &launch) { check(&LIMITS, &k, &launch) } else { Err(INVALID_VALUE) };
        assert_eq!(got, want, "{grid:?} {block:?}");
    }
    let cooperative = Launch { cooperative: true, ..launch([1; 3], [1; 3]) };
    assert_eq!(check(&LIMITS, &k, &cooperative), Err(NOT_SUPPORTED));
}

#[test]
fn parameters_go_to_their_offsets_and_gaps_are_zero() {
    let k = kernel(&[(0, 1), (8, 8), (16, 2)], 1024);
    let (mut a, mut b, mut c) = (7u8, 0x1122_3344_5566_7788u64, 0xaabbu16);
    let mut pointers = [from_mut(&mut a).cast::<c_void>(), from_mut(&mut b).cast(), from_mut(&mut c).cast()];
    let mut block = vec![0; 18];
    pack(&k, Ptr::of_argument(pointers.as_mut_ptr()), null(), &mut block).unwrap();
    assert_eq!(block, [7, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xbb, 0xaa]);
    pointers[1] = null_mut();
    assert_eq!(pack(&k, Ptr::of_argument(pointers.as_mut_ptr()), null(), &mut block), Err(INVALID_VALUE));
}

#[test]
fn a_block_of_the_program_s_is_taken_as_it_is() {
    let k = kernel(&[(0, 4), (4, 4)], 1024);
    let mut bytes = [1u8, 2, 3, 4, 5, 6, 7, 8, 9];
    let mut size = 8usize;
    let marker = std::ptr::without_provenance_mut::<c_void>;
    let mut extra =
        [marker(BUFFER), bytes.as_mut_ptr().cast(), marker(SIZE), from_mut(&mut size).cast(), marker(END)];
    let mut block = vec![0; 8];
    pack(&k, null(), Ptr::of_argument(extra.as_mut_ptr()), &mut block).unwrap();
    assert_eq!(block, [1, 2, 3, 4, 5, 6, 7, 8]);
    let mut short = 7usize;
    extra[3] = from_mut(&mut short).cast();
    let at = Ptr::of_argument(extra.as_mut_ptr());
    assert_eq!(pack(&k, null(), at, &mut block), Err(INVALID_VALUE));
    assert_eq!(pack(&k, at, at, &mut block), Err(INVALID_VALUE), "both at once");
    assert_eq!(pack(&k, null(), null(), &mut block), Err(INVALID_VALUE), "neither");
    assert_eq!(pack(&kernel(&[], 1), null(), null(), &mut []), Ok(()));
}

#[test]
fn the_structs_have_cuda_h_s_layout() {
    assert_eq!(size_of::<LaunchConfig>(), size_of::<CUlaunchConfig>());
    assert_eq!(size_of::<LaunchAttribute>(), size_of::<CUlaunchAttribute>());
    assert_eq!(std::mem::offset_of!(LaunchConfig, stream), std::mem::offset_of!(CUlaunchConfig, hStream));
    assert_eq!(std::mem::offset_of!(LaunchConfig, count), std::mem::offset_of!(CUlaunchConfig, numAttrs));
    assert_eq!(std::mem::offset_of!(LaunchAttribute, value), std::mem::offset_of!(CUlaunchAttribute, value));
}

//! Checks of launches.

use super::*;
use cudarc::driver::sys::{CUlaunchAttribute, CUlaunchConfig};

const LIMITS: Limits = Limits {
    threads: 1024,
    block: [1024, 1024, 64],
    grid: [i32::MAX as u32, 65535, 65535],
    cooperative: false,
    multiprocessors: 1,
    registers: 65536,
};

/// With the attributes up to the number of registers.
fn kernel(most_threads: i32, registers: i32) -> Kernel {
    Kernel::new(c"k", Vec::new(), vec![most_threads, 0, 0, 0, registers]).unwrap()
}

fn launch(grid: [u32; 3], block: [u32; 3]) -> Launch<'static> {
    let (function, stream) = (Raw::NULL, Raw::NULL);
    Launch { function, grid, block, dynamic_shared: 0, stream, cooperative: false, attributes: &[] }
}

#[test]
fn extents_are_checked_with_cuda_s_codes() {
    let k = kernel(512, 121);
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
    // 60 registers are 64: 1,024 threads have room. What is too much then is beyond the launch bounds.
    for (registers, threads, want) in [
        (60, 1024, INVALID_VALUE),
        (65, 129, INVALID_VALUE),
        (65, 1024, LAUNCH_OUT_OF_RESOURCES),
        (-1, 129, LAUNCH_OUT_OF_RESOURCES),
    ] {
        let bound = kernel(128, registers);
        let got = check(&LIMITS, &bound, &launch([1; 3], [threads, 1, 1]));
        assert_eq!(got, Err(want), "{threads} threads of {registers} registers");
    }
    let cooperative = Launch { cooperative: true, ..launch([1; 3], [1; 3]) };
    assert_eq!(check(&LIMITS, &k, &cooperative), Err(NOT_SUPPORTED));
}

#[test]
fn the_structs_have_cuda_h_s_layout() {
    assert_eq!(size_of::<LaunchConfig>(), size_of::<CUlaunchConfig>());
    assert_eq!(size_of::<LaunchAttribute>(), size_of::<CUlaunchAttribute>());
    assert_eq!(std::mem::offset_of!(LaunchConfig, stream), std::mem::offset_of!(CUlaunchConfig, hStream));
    assert_eq!(std::mem::offset_of!(LaunchConfig, count), std::mem::offset_of!(CUlaunchConfig, numAttrs));
    assert_eq!(std::mem::offset_of!(LaunchAttribute, value), std::mem::offset_of!(CUlaunchAttribute, value));
}

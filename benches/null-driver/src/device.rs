//! The device's fixed facts.

/// What `cuDriverGetVersion` says: CUDA 13.0.
pub const DRIVER_VERSION: i32 = 13_000;
/// The device's name.
pub const NAME: &std::ffi::CStr = c"null device";
/// The device's UUID: that of nothing.
pub const UUID: [u8; 16] = *b"gpupool-null-dev";
/// A multiple that rows of `cuMemAllocPitch` have, in bytes.
pub const PITCH: usize = 512;
/// Priorities of streams, from the least to the greatest.
pub const PRIORITIES: (i32, i32) = (0, -5);

/// An attribute by its number (`CUdevice_attribute`), as a card of compute capability 9.0 has it; 0 for what this device
/// has not.
pub fn attribute(number: i32) -> i32 {
    match number {
        1..=3 => 1024,          // threads a block, in x, in y
        4 => 64,                // block in z
        5 => i32::MAX,          // grid in x
        6 | 7 => 65_535,        // grid in y and z
        8 => 48 << 10,          // shared memory a block
        9 => 64 << 10,          // constant memory
        10 => 32,               // warp
        11 => i32::MAX,         // pitch
        12 | 82 => 65_536,      // registers a block and a multiprocessor
        13 | 36 => 1_000_000,   // clocks, kHz
        14 => 512,              // texture alignment
        15 | 31 | 40 | 41 => 1, // overlap, concurrent kernels, copy engines, unified addressing
        16 => 1,                // multiprocessors
        39 => 2048,             // threads a multiprocessor
        75 => 9,                // compute capability
        76 => 0,
        78 => 1,         // stream priorities
        81 => 228 << 10, // shared memory a multiprocessor
        97 => 227 << 10, // shared memory a block can ask for
        102 | 103 => 1,  // virtual memory management, by file descriptor
        106 => 32,       // blocks a multiprocessor
        115 => 1,        // memory pools
        _ => 0,
    }
}

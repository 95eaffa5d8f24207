//! The values of device attributes: those of a card of the device's compute capability where the software device can keep
//! the promise, 0 where it cannot.
#![forbid(unsafe_code)]

use crate::device::Device;

/// Threads of a block.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// Largest block in x, y, z.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Largest grid in x, y, z.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Registers of a multiprocessor, and of a block.
pub const REGISTERS: u32 = 65536;
/// Shared memory that a block has without asking.
pub const SHARED_PER_BLOCK: u32 = 48 << 10;
/// Bytes of a row of `cuMemAllocPitch` are a multiple of this.
pub const PITCH_ALIGNMENT: u32 = 512;

/// Memory of textures begins at a multiple of this.
pub const TEXTURE_ALIGNMENT: u32 = 512;
/// Rows of textures in plain memory are a multiple of this.
pub const TEXTURE_PITCH_ALIGNMENT: u32 = 32;
/// Texels of a texture in plain memory.
pub const LINEAR_TEXELS: u32 = 1 << 28;
/// Texels a row, and rows, of a texture in pitched memory: the larger of the two limits.
pub const PITCHED_EXTENT: u32 = 131_072;

/// The value of an attribute, by its number in `cuda.h`; `None` for a number that is none.
pub fn value(device: &Device, id: u32) -> Option<i32> {
    let (identity, capability) = (&device.identity, &device.capability);
    Some(match id {
        1 => MAX_THREADS_PER_BLOCK as i32,
        2..=4 => MAX_BLOCK[id as usize - 2] as i32,
        5..=7 => MAX_GRID[id as usize - 5] as i32,
        8 => SHARED_PER_BLOCK as i32,
        9 => 64 << 10,  // constant memory
        10 => 32,       // warp size
        11 => i32::MAX, // pitch
        12 | 82 => REGISTERS as i32,
        13 => 2_000_000,                     // clock, kHz
        14 | 30 => TEXTURE_ALIGNMENT as i32, // of surfaces as well
        15 => 1,                             // overlap of copy and kernel
        16 => device.multiprocessors as i32,
        17 | 18 => 0,     // kernel time limit; integrated
        19 => 1,          // maps host memory
        20 => 0,          // compute mode: default
        21 | 77 => 32768, // 1D texture width, mipmapped
        22 | 23 => 65536, // 2D texture
        24..=26 => 4096,  // 3D texture
        27 | 28 => 32768, // 2D layered texture
        29 | 43 => 2048,  // layers
        31 => 1,          // concurrent kernels
        32 => 0,          // ECC
        33 => identity.pci_bus,
        34 => identity.pci_device,
        35 => 0,         // TCC driver
        36 => 2_000_000, // memory clock, kHz
        37 => 128,       // memory bus, bits
        38 => 32 << 20,  // L2
        39 => capability.threads as i32,
        40 => 2,     // copy engines
        41 => 1,     // unified addressing
        42 => 32768, // 1D layered texture
        44 => 1,     // 2D gather
        45 | 46 => 32768,
        47 | 48 => 2048, // alternate 3D texture
        49 => 16384,
        50 => identity.pci_domain,
        51 => TEXTURE_PITCH_ALIGNMENT as i32,
        52 | 53 => 32768, // cube map textures
        54 => 2046,
        55 | 61 => 32768, // 1D surfaces
        56 => 131_072,    // 2D surface
        57 => 65536,
        58..=60 => 16384, // 3D surface
        62 | 65 => 2048,
        63 | 64 => 32768, // 2D layered surface
        66 | 67 => 32768, // cube map surfaces
        68 => 2046,
        69 => LINEAR_TEXELS as i32,
        70 => PITCHED_EXTENT as i32,
        71 => 65000,
        72 => 2_097_120,
        73 | 74 => 32768, // 2D mipmapped texture
        75 => capability.major as i32,
        76 => capability.minor as i32,
        78..=80 => 1, // stream priorities; L1 caches of global and local memory
        81 => capability.shared as i32,
        83 => 1,                  // managed memory
        84 | 85 => 0,             // multi-GPU board
        86 => 1,                  // native host atomics: device memory is host memory
        87 => 2,                  // single to double precision
        88 => 0,                  // pageable memory access: kernels reach registered memory only
        89 => 1,                  // concurrent managed access
        90 => 1,                  // compute preemption
        91 => 1,                  // host pointers of registered memory
        92..=94 | 122 | 123 => 1, // stream memory operations, of 64 bits too, and with NOR
        95 => 1,                  // cooperative launch
        96 => 0,                  // the same over several devices
        97 => capability.shared_of_block as i32,
        98 => 0,        // remote writes
        99 => 1,        // host registration
        100 => 0,       // host page tables
        101 => 1,       // managed memory is reached directly by the host
        102 | 103 => 1, // virtual memory management, exported as file descriptors
        104 | 105 => 0, // or as handles of Windows
        106 => capability.blocks as i32,
        107..=109 => 0, // compression, persisting L2, access policy window
        110 => 0,       // GPUDirect RDMA
        111 => capability.shared_reserved as i32,
        112 | 114 => 0,                          // sparse arrays, timeline semaphores
        113 => 1,                                // read-only registration
        115 => 1,                                // memory pools
        116..=118 => 0,                          // GPUDirect RDMA
        119 => 1,                                // pools go to others as file descriptors
        120 => i32::from(capability.major >= 9), // cluster launch
        121 | 124 => 0,                          // deferred arrays, dma-buf
        125 | 126 => 1,                          // IPC events, memory synchronisation domains
        127..=129 => 0,                          // tensor maps, fabric handles, unified function pointers
        130 => 0,                                // NUMA: none
        131 => -1,
        132 | 133 => 0, // multicast, MPS
        134 => -1,      // host NUMA node: unknown
        135..=138 => 0,
        139 | 140 => 0, // PCI device and subsystem: it has none
        141..=158 | 161 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What NVIDIA's runtimes 12.9 and 13.5 ask for while they start.
    const ASKED: &[std::ops::RangeInclusive<u32>] = &[
        1..=12,
        14..=14,
        16..=16,
        18..=19,
        21..=35,
        37..=43,
        45..=68,
        70..=86,
        88..=91,
        95..=95,
        97..=97,
        99..=101,
        106..=106,
        108..=109,
        111..=121,
        125..=125,
        129..=131,
        133..=134,
        139..=140,
        143..=143,
    ];

    #[test]
    fn every_attribute_that_a_runtime_asks_for_has_a_value() {
        let device = &*crate::device::for_tests(1)[0];
        for id in ASKED.iter().cloned().flatten() {
            assert!(value(device, id).is_some(), "attribute {id}");
        }
        assert_eq!(value(device, 16), Some(2));
        assert_eq!((value(device, 75), value(device, 76)), (Some(9), Some(0)));
        assert_eq!((value(device, 0), value(device, 159), value(device, 5000)), (None, None, None));
    }
}

//! What a multiprocessor of each compute capability holds: "Technical specifications per compute capability" in the CUDA
//! C++ Programming Guide. What is the same for all that softcuda presents is in [`crate::attributes`].
#![forbid(unsafe_code)]

/// A compute capability, and what its multiprocessors hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Threads of a multiprocessor.
    pub threads: u32,
    /// Blocks of a multiprocessor.
    pub blocks: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared: u32,
    /// Bytes of shared memory that a block can ask for.
    pub shared_of_block: u32,
    /// Bytes of shared memory of a block that the system takes.
    pub shared_reserved: u32,
}

impl Capability {
    /// A compute capability. One that the guide does not list has what the newest older one has.
    pub fn of((major, minor): (u32, u32)) -> Capability {
        // Threads, blocks, KiB of shared memory a multiprocessor and a block.
        let (threads, blocks, shared, shared_of_block) = match (major, minor) {
            (..=5, 2) | (6, 1) => (2048, 32, 96, 48),
            (..=6, _) => (2048, 32, 64, 48),
            (7, ..=4) => (2048, 32, 96, 96),
            (7, _) => (1024, 16, 64, 64),
            (8, ..=5) => (2048, 32, 164, 163),
            (8, 6) => (1536, 16, 100, 99),
            (8, 7) => (1536, 16, 164, 163),
            (8, _) => (1536, 24, 100, 99),
            (9 | 10, _) => (2048, 32, 228, 227),
            (11, _) => (1536, 24, 228, 227),
            _ => (1536, 24, 100, 99),
        };
        let (shared, shared_of_block) = (shared << 10, shared_of_block << 10);
        let shared_reserved = if major >= 8 { 1 << 10 } else { 0 };
        Capability { major, minor, threads, blocks, shared, shared_of_block, shared_reserved }
    }

    /// As PTX targets and fatbins write it: 89 for 8.9.
    pub fn architecture(&self) -> u32 {
        10 * self.major + self.minor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_table() {
        // Capability; threads, blocks, shared memory a multiprocessor and a block in KiB, as the guide lists them.
        let table = [
            ((7, 5), [1024, 16, 64, 64]),
            ((8, 0), [2048, 32, 164, 163]),
            ((8, 6), [1536, 16, 100, 99]),
            ((8, 9), [1536, 24, 100, 99]),
            ((9, 0), [2048, 32, 228, 227]),
            ((10, 0), [2048, 32, 228, 227]),
            ((12, 0), [1536, 24, 100, 99]),
        ];
        for (capability, [threads, blocks, shared, of_block]) in table {
            let found = Capability::of(capability);
            let kib = [found.threads, found.blocks, found.shared >> 10, found.shared_of_block >> 10];
            assert_eq!(kib, [threads, blocks, shared, of_block], "{capability:?}");
        }
        assert_eq!(Capability::of((12, 1)).architecture(), 121);
    }
}

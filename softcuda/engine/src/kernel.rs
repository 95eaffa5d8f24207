//! A kernel that can be launched.

/// Where a kernel parameter lies in [`crate::Launch::params`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Offset in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// A kernel of a loaded module. Its code is made at the first launch.
#[derive(Debug)]
pub struct Kernel {
    /// The name in the PTX (mangled).
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// Bytes of statically declared shared memory.
    pub static_shared: u32,
    /// Bytes of `.const` variables of the module.
    pub const_bytes: u32,
    /// Bytes of local memory that a thread needs.
    pub local_bytes: u32,
    /// A plausible number of registers a thread (a CPU has none to count).
    pub num_regs: u32,
    /// The largest block that this kernel can be launched with (`.maxntid`, `.reqntid`, else 1024).
    pub max_threads_per_block: u32,
    /// `.reqntid`: the block must have exactly these dimensions.
    pub required_block: Option<[u32; 3]>,
    /// `.target`: 10 × major + minor, 75 for `sm_75`.
    pub ptx_target: u32,
    /// `.version`: 10 × major + minor, 93 for 9.3.
    pub ptx_version: u32,
}

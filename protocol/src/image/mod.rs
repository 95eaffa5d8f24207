//! Module images: how long one is, and what a load or a link says about it.

mod contents;
mod extent;
pub mod linked;

pub use contents::{Contents, JitOption, KernelInfo, LinkInput, LinkInputs, LinkProduct, ParamInfo};
pub use extent::{ImageError, Memory, extent, fatbin_of_wrapper, is_fatbin_wrapper, parts_of_wrapper};

/// The most bytes that one image or one link may have.
pub const MAX_IMAGE: u64 = 2 << 30;

/// The most bytes that the parameters of one kernel take: CUDA's own limit (CUDA C++ Programming Guide, `__global__` function
/// parameters). A worker refuses an image with a larger kernel; a client takes none from it.
pub const MAX_PARAMETERS: u32 = 32_764;

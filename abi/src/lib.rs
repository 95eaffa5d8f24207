//! What any `libcuda.so.1` must show to a CUDA runtime: symbols and their versions, private tables, error names.
//!
//! Two libraries use this crate, the client's stand-in and the CPU driver; it knows nothing of either. What it says of
//! CUDA comes from `cuda.h`, from the driver API manual and from measurements on NVIDIA's own runtime libraries.
//!
//! # A note on the integrity check
//! NVIDIA's runtime library asks the driver library, through a private table, for a keyed checksum over facts of the
//! process and its devices, and answers every call with error 103 (`cudaErrorSoftwareValidityNotEstablished`, which
//! NVIDIA documents as a self-test of the runtime's or driver's validity) unless the answer is the expected one. A
//! library that stands in for `libcuda.so.1` must therefore answer it, and every open one does ([`integrity`]). The
//! answer protects no content and opens no licensed feature; it lets independently written libraries work together.
//! Nothing here comes from NVIDIA's code. Whoever uses NVIDIA's programs and libraries together with this project does
//! so under the licence terms that those came with, and answers for that alone.

extern crate self as cuda_abi;

pub mod context_storage;
pub mod errors;
pub mod export_tables;
pub mod integrity;
pub mod symbols;

pub use cuda_abi_macros::refuse_rest;
/// The types of the driver API that this crate and the exports of [`refuse_rest!`] speak.
pub use cudarc::driver::sys;

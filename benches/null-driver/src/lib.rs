//! The null driver: a `libcuda.so.1` whose one device has memory and nothing else.
//!
//! A pool server loads it like any driver, so that what a benchmark measures is the cost of forwarding and no device's.
//! Memory is real: allocations, copies, sets and the virtual memory functions do what CUDA says, at once. Kernels do
//! nothing and need no time; streams and events are numbers; a module load reads the kernels and their parameters from
//! the headers of PTX text. Images without PTX text answer CUDA_ERROR_NO_BINARY_FOR_GPU, and every function that no
//! benchmark needs CUDA_ERROR_NOT_SUPPORTED. It is no driver to compute with.
#![deny(unsafe_code)]

mod arena;
mod device;
mod exports;
mod host;
mod image;
mod modules;
mod objects;
mod vmm;

use cuda_abi::sys::CUresult;

/// What a call gives besides its results.
type Result<T = ()> = std::result::Result<T, CUresult>;

//! The program's memory and functions, reached because the program asked for it: the addresses come from arguments that
//! the CUDA driver API manual demands to be valid.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use gpupool_protocol::image::Memory;
use gpupool_protocol::wire::DownChunk;
use gpupool_protocol::wire::landing::Landings;

fn at<T>(address: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Bytes that the program gave to be read during this call.
pub fn bytes(address: u64, len: usize) -> &'static [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the module's promise; the bodies keep it no longer than their call, as the program does.
    unsafe { std::slice::from_raw_parts(at(address), len) }
}

/// Bytes that the program gave to be written during this call.
pub fn bytes_mut(address: u64, len: usize) -> &'static mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: as in `bytes`; nothing else of this library has them at the same time.
    unsafe { std::slice::from_raw_parts_mut(at(address), len) }
}

/// Has a chunk's bytes put where the program wants them, if they are received and not shared.
pub fn receive_into(chunk: &mut DownChunk<'_>, address: u64, len: usize) {
    // SAFETY: the module's promise; the call returns to the program when the chunk is gone.
    unsafe { chunk.receive_into(at(address), len) };
}

/// Opens a landing for bytes that the program wants at `address` without waiting for them; gives its number.
pub fn open_landing(landings: &Landings, address: u64, len: usize, context: u64) -> u64 {
    // SAFETY: pinned memory that the program must not give back before the copy is over; `calls::landing` closes what is
    // open before pinned memory ends all the same.
    unsafe { landings.open(address as usize, len, context) }
}

/// Copies within the program's memory; the ranges may overlap.
pub fn copy(destination: u64, source: u64, len: usize) {
    // SAFETY: the module's promise.
    unsafe { ptr::copy(at::<u8>(source), at::<u8>(destination), len) };
}

/// A host function, as the program gave it.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// Runs a host function.
pub fn run(function: HostFunction, data: u64) {
    // SAFETY: the program asked for exactly this call.
    unsafe { function(at(data)) };
}

/// Runs a stream's callback. The stream has come to it, so nothing before it failed.
pub fn run_in_stream(function: crate::calls::StreamFunction, stream: u64, data: u64) {
    // SAFETY: the program asked for exactly this call.
    unsafe { function(crate::cptr::Raw::new(stream), cudarc::driver::sys::CUresult::CUDA_SUCCESS, at(data)) };
}

/// The program's answer to how much dynamic shared memory a block of this size takes.
pub fn dynamic_shared(function: unsafe extern "C" fn(i32) -> usize, block_size: i32) -> usize {
    // SAFETY: the program asked for exactly this call.
    unsafe { function(block_size) }
}

/// This process's memory, read so that an address that is not mapped is an error and no fault.
pub struct OwnMemory;

impl Memory for OwnMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: at(address), iov_len: into.len() };
        // SAFETY: the local side is `into`; the kernel checks the remote side.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if read >= 0 {
            return read as usize == into.len();
        }
        // Where a sandbox forbids the call, the driver's own way is left: to read and trust the program.
        if std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) {
            return false;
        }
        into.copy_from_slice(bytes(address, into.len()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mapped_is_not_read() {
        let there = [1u8, 2, 3, 4];
        let mut into = [0; 4];
        assert!(OwnMemory.read(there.as_ptr().expose_provenance() as u64, &mut into));
        assert_eq!(into, there);
        assert!(!OwnMemory.read(8, &mut into));
    }
}

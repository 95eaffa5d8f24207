//! The parameters of a launch: read from the program's pointers, and given back to it.

use crate::error::*;
use softcuda_engine as engine;
use std::ffi::c_void;

/// `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER` and `_BUFFER_SIZE` in the `extra` array.
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;

/// The parameters, packed: from an array of pointers to values, or from the one buffer that `extra` names.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if both or (for a kernel with parameters) none is given, for null pointers, and for a
/// buffer of the wrong size.
///
/// # Safety
/// Each array is null or complete: `values` has a pointer to a value for each parameter, `extra` ends with its end mark.
pub unsafe fn parameters(
    kernel: &engine::Kernel,
    values: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Vec<u8>> {
    let total = kernel.params.iter().map(|p| (p.offset + p.size) as usize).max().unwrap_or(0);
    match (values.is_null(), extra.is_null()) {
        (false, false) => Err(CUDA_ERROR_INVALID_VALUE),
        // SAFETY: the caller vouches for `extra`.
        (true, false) => unsafe { from_buffer(extra, total) },
        (true, true) if total > 0 => Err(CUDA_ERROR_INVALID_VALUE),
        (_, true) => {
            let mut packed = vec![0; total];
            for (i, parameter) in kernel.params.iter().enumerate() {
                // SAFETY: `values` has an entry for each parameter.
                let value = unsafe { *values.add(i) };
                if value.is_null() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let place = &mut packed[parameter.offset as usize..][..parameter.size as usize];
                // SAFETY: the value has the parameter's size.
                unsafe { std::ptr::copy_nonoverlapping(value.cast(), place.as_mut_ptr(), place.len()) };
            }
            Ok(packed)
        }
    }
}

/// # Safety
/// `extra` ends with its end mark, and what it names is there.
unsafe fn from_buffer(extra: *mut *mut c_void, total: usize) -> Result<Vec<u8>> {
    let (mut buffer, mut size) = (std::ptr::null::<u8>(), 0);
    let mut at = extra;
    // Two settings are all that exist.
    for _ in 0..3 {
        // SAFETY: the end mark has not come yet.
        let (name, value) = unsafe { ((*at).addr(), at.add(1)) };
        match name {
            EXTRA_END => break,
            // SAFETY: a setting is followed by its value.
            EXTRA_POINTER => buffer = unsafe { *value }.cast(),
            // SAFETY: the value of this setting points at a size.
            EXTRA_SIZE => unsafe {
                let place = (*value).cast::<usize>();
                if place.is_null() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                size = place.read();
            },
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: as above.
        at = unsafe { at.add(2) };
    }
    if size < total || (buffer.is_null() && total > 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut packed = vec![0; total];
    if total > 0 {
        // SAFETY: the buffer has `size` bytes, which are at least as many.
        unsafe { std::ptr::copy_nonoverlapping(buffer, packed.as_mut_ptr(), total) };
    }
    Ok(packed)
}

/// Pointers to the values in packed parameters, as `kernelParams` has them.
pub struct Values(Box<[*mut c_void]>);

// SAFETY: the pointers are only handed to the program, which reads what they point at.
unsafe impl Send for Values {}
// SAFETY: as above.
unsafe impl Sync for Values {}

impl Values {
    /// Pointers into `packed`, which must stay where it is while they are used.
    pub fn of(kernel: &engine::Kernel, packed: &[u8]) -> Values {
        let at = |p: &engine::Param| packed[p.offset as usize..].as_ptr().cast_mut().cast();
        Values(kernel.params.iter().map(at).collect())
    }

    /// The array; null for a kernel without parameters.
    pub fn as_ptr(&self) -> *mut *mut c_void {
        if self.0.is_empty() { std::ptr::null_mut() } else { self.0.as_ptr().cast_mut() }
    }
}

//! User objects: something of the program that lives as long as anybody, graphs among them, holds references to it.
#![forbid(unsafe_code)]

use crate::driver::TABLES;
use crate::error::*;
use crate::host_call::HostCall;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One object.
pub struct UserObject {
    /// Its handle.
    pub handle: usize,
    references: AtomicU32,
    destroy: HostCall,
}

/// `cuUserObjectCreate`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for no references, or flags other than the one that must be given.
pub fn create(destroy: HostCall, references: u32, flags: u32) -> Result<usize> {
    // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC: nothing waits for the destructor. CUDA knows no other way.
    if references == 0 || references > i32::MAX as u32 || flags != 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = TABLES.user_objects.reserve();
    let object = UserObject { handle, references: AtomicU32::new(references), destroy };
    TABLES.user_objects.add(handle, Arc::new(object));
    Ok(handle)
}

/// The object of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn find(handle: usize) -> Result<Arc<UserObject>> {
    TABLES.user_objects.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}

impl UserObject {
    /// Adds references.
    pub fn retain(&self, count: u32) {
        self.references.fetch_add(count, Ordering::Relaxed);
    }

    /// Whether it has at least so many references.
    pub fn has(&self, count: u32) -> bool {
        self.references.load(Ordering::Relaxed) >= count
    }

    /// Takes references away; with the last one the program's function is called. No lock may be held.
    pub fn release(&self, count: u32) {
        let old = self.references.fetch_sub(count, Ordering::AcqRel);
        if old <= count {
            TABLES.user_objects.remove(self.handle);
            self.destroy.run();
        }
    }
}

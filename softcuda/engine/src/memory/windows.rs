//! Windows: memory outside of the device's own range that its kernels may touch all the same, each under its own address.
//! Registered host memory, virtual memory that a program maps, another device's or process's memory.
//!
//! Granules that lie wholly in a writable window are marked in the table, so that most accesses pass the quick check; the
//! rest (its ends, read-only windows) is looked up here.

use super::Memory;
use super::table::Why;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// What kernels may do in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Read and write.
    ReadWrite,
}

#[derive(Clone, Copy)]
struct Window {
    len: u64,
    access: Access,
}

/// All windows of a device, by address.
#[derive(Default)]
pub(super) struct Windows(RwLock<BTreeMap<u64, Window>>);

/// The windows, while none is opened or closed.
pub(super) struct Held<'a>(RwLockReadGuard<'a, BTreeMap<u64, Window>>);

impl Held<'_> {
    /// Addresses and lengths of those that may be written.
    pub(super) fn writable(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().filter(|(_, w)| w.access == Access::ReadWrite).map(|(addr, w)| (*addr, w.len))
    }
}

impl Windows {
    pub(super) fn lock(&self) -> Held<'_> {
        Held(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether adjoining windows hold a whole range, and may be written if that is asked.
    fn permit(&self, addr: u64, len: u64, write: bool) -> bool {
        let windows = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = addr.checked_add(len.max(1)) else { return false };
        let mut at = addr;
        while at < end {
            let Some((base, window)) = windows.range(..=at).next_back() else { return false };
            if at - base >= window.len || (write && window.access == Access::Read) {
                return false;
            }
            at = base + window.len;
        }
        true
    }
}

impl Memory {
    /// Lets kernels and the driver's copies touch `len` bytes at `addr`. The caller keeps them mapped (and writable, if the
    /// access says so) until [`Memory::close_window`]. `false`: it overlaps another window, or is empty.
    pub fn open_window(&self, addr: u64, len: u64, access: Access) -> bool {
        let mut windows = self.windows.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = addr.checked_add(len) else { return false };
        let clash = windows.range(..end).next_back().is_some_and(|(b, w)| b + w.len > addr);
        if len == 0 || clash || (access == Access::ReadWrite && !self.table.mark(addr, len, Why::Window)) {
            return false;
        }
        if access == Access::ReadWrite {
            self.views.mark(addr, len, Why::Window);
        }
        windows.insert(addr, Window { len, access });
        true
    }

    /// Ends [`Memory::open_window`]. `false`: no window begins at `addr`. A kernel that runs may have passed its check just
    /// before: until [`Memory::is_idle`] was true once, something must stay mapped there.
    pub fn close_window(&self, addr: u64) -> bool {
        let mut windows = self.windows.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = windows.remove(&addr) else { return false };
        if window.access == Access::ReadWrite {
            self.table.clear(addr, window.len, Why::Window);
            self.views.clear(addr, window.len, Why::Window);
        }
        true
    }

    /// Lets kernels touch `len` bytes of host memory at `ptr`: a window that may be written.
    pub fn register_host(&self, ptr: u64, len: u64) -> bool {
        self.open_window(ptr, len, Access::ReadWrite)
    }

    /// Ends [`Memory::register_host`].
    pub fn unregister_host(&self, ptr: u64) -> bool {
        self.close_window(ptr)
    }

    /// Whether `len` bytes at `addr` lie in windows.
    pub fn check_host(&self, addr: u64, len: u64) -> bool {
        self.windows.permit(addr, len, false)
    }

    /// Whether a kernel may touch `len` bytes at `addr`: the rule of the generated code, by granules, or windows.
    pub(crate) fn permits(&self, addr: u64, len: u64, write: bool) -> bool {
        self.table.all(addr, len) || self.windows.permit(addr, len, write)
    }

    pub(super) fn window_permits(&self, addr: u64, len: u64, write: bool) -> bool {
        self.windows.permit(addr, len, write)
    }
}

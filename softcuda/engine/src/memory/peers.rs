//! Device memory that others reach: kernels of another device's context, another process.

use super::door::Closed;
use super::map::{self, Mapping};
use super::physical::PREFIX;
use super::table::{Table, Why};
use super::{CHUNK, Memory};
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What kernels of a context may touch that has been given access to other devices' memory: all that kernels of its own
/// device may, and that.
pub struct View {
    table: Table,
}

impl View {
    /// Address of its granule table; kernels read it.
    pub(crate) fn table(&self) -> u64 {
        self.table.address()
    }

    /// Whether all granules that a range touches are open.
    pub(crate) fn permits(&self, addr: u64, len: u64) -> bool {
        self.table.all(addr, len)
    }
}

/// Views that a device's memory is seen in.
#[derive(Default)]
pub(super) struct Views(Mutex<Vec<Weak<View>>>);

impl Views {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<View>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a range in all of them. What cannot be marked stays closed: a fault says so.
    pub(super) fn mark(&self, addr: u64, len: u64, why: Why) {
        self.lock().iter().filter_map(Weak::upgrade).for_each(|view| _ = view.table.mark(addr, len, why));
    }

    /// Takes marks away in all of them.
    pub(super) fn clear(&self, addr: u64, len: u64, why: Why) {
        self.lock().iter().filter_map(Weak::upgrade).for_each(|view| view.table.clear(addr, len, why));
    }
}

/// A part of the range that is a file by now.
pub(super) struct SharedPart {
    pub(super) len: u64,
    file: OwnedFd,
}

/// An allocation in a form that another process can map: the part of the range that it lies in.
pub struct SharedMemory {
    /// The file, which is this process's own.
    pub file: OwnedFd,
    /// Where the allocation begins in it.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
}

impl Memory {
    /// A view of this device's memory, to which that of others can be opened.
    ///
    /// # Errors
    /// When the system refuses the addresses of its table.
    pub fn view(&self) -> io::Result<Arc<View>> {
        let view = Arc::new(View { table: Table::new()? });
        // Under the locks under which allocations and windows are made, so that none is forgotten.
        let _state = self.state();
        let windows = self.windows.lock();
        let own = self.table.own_runs(self.range.address(), self.range.length());
        let own = own.into_iter().map(|(addr, len)| (addr, len, Why::Own));
        let all = own.chain(windows.writable().map(|(addr, len)| (addr, len, Why::Window)));
        for (addr, len, why) in all {
            if !view.table.mark(addr, len, why) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        self.views.lock().push(Arc::downgrade(&view));
        Ok(view)
    }

    /// Opens all allocations of this device, those to come as well, in a view of another one.
    pub fn open_to(&self, view: &Arc<View>) {
        let _state = self.state();
        for (addr, len) in self.table.own_runs(self.range.address(), self.range.length()) {
            // What cannot be marked stays closed: a fault says so.
            let _ = view.table.mark(addr, len, Why::Peer);
        }
        let mut peers = self.peers.lock();
        peers.retain(|peer| peer.strong_count() > 0);
        peers.push(Arc::downgrade(view));
    }

    /// Ends [`Memory::open_to`].
    pub fn close_to(&self, view: &Arc<View>) {
        let _state = self.state();
        self.peers.lock().retain(|p| p.as_ptr() != Arc::as_ptr(view) && p.strong_count() > 0);
        view.table.clear(self.range.address(), self.range.length(), Why::Peer);
    }

    /// Makes an allocation one that another process can map. The first time its bytes move, while all kernels of all devices stand
    /// still between two blocks or where they can wait, and copies between two of them.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if no allocation begins at `addr`.
    pub fn share(&self, addr: u64, label: &str) -> io::Result<SharedMemory> {
        // Before the lock, which those take who are inside.
        let _closed = Closed::new();
        let mut s = self.state();
        let a = *s.live.get(&addr).filter(|a| !a.scratch).ok_or(io::ErrorKind::NotFound)?;
        let (base, len) = if a.large { (addr, a.room) } else { (addr / CHUNK * CHUNK, CHUNK) };
        let part = match s.shared.entry(base) {
            Entry::Occupied(part) => part.into_mut(),
            Entry::Vacant(place) => {
                let file = map::memory_file(&format!("{PREFIX}{label}"), len)?;
                copy_to_file(&file, base, len)?;
                self.range.map_file(base, &file, 0, len)?;
                place.insert(SharedPart { len, file })
            }
        };
        let file = part.file.as_fd().try_clone_to_owned()?;
        Ok(SharedMemory { file, offset: addr - base, size: a.size })
    }
}

/// Copies what is at an address into a file of that length.
pub(super) fn copy_to_file(file: &OwnedFd, addr: u64, len: u64) -> io::Result<()> {
    let all = Mapping::reserve_anywhere(len as usize, 1 << 16)?;
    all.map_file(all.address(), file, 0, len)?;
    map::copy(all.address(), addr, len);
    Ok(())
}

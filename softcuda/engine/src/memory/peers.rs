//! Device memory that others reach: another device's kernels, another process.

use super::map::{self, Mapping};
use super::physical::PREFIX;
use super::table::Why;
use super::{CHUNK, Memory};
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Devices whose kernels reach this one's memory.
#[derive(Default)]
pub(super) struct Peers(Mutex<Vec<Weak<Memory>>>);

impl Peers {
    pub(super) fn each(&self, mut body: impl FnMut(&Memory)) {
        let peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        peers.iter().filter_map(Weak::upgrade).for_each(|peer| body(&peer));
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
    /// Opens all allocations of this device, those to come as well, to the kernels of another one.
    pub fn open_to(&self, peer: &Arc<Memory>) {
        // Under the lock that allocations are made under, so that none is forgotten.
        let _state = self.state();
        for (addr, len) in self.table.own_runs(self.range.address(), self.range.length()) {
            // What cannot be marked stays closed: a fault says so.
            let _ = peer.table.mark(addr, len, Why::Peer);
        }
        self.peers.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(peer));
    }

    /// Ends [`Memory::open_to`].
    pub fn close_to(&self, peer: &Arc<Memory>) {
        let _state = self.state();
        let mut peers = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|p| p.as_ptr() != Arc::as_ptr(peer) && p.strong_count() > 0);
        peer.table.clear(self.range.address(), self.range.length(), Why::Peer);
    }

    /// Makes an allocation one that another process can map. No kernel and no copy may run meanwhile: its bytes move.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if no allocation begins at `addr`.
    pub fn share(&self, addr: u64, label: &str) -> io::Result<SharedMemory> {
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
fn copy_to_file(file: &OwnedFd, addr: u64, len: u64) -> io::Result<()> {
    let all = Mapping::reserve_anywhere(len as usize, 1 << 16)?;
    all.map_file(all.address(), file, 0, len)?;
    map::copy(all.address(), addr, len);
    Ok(())
}

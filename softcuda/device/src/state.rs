//! The file of a device.
//!
//! It lies in memory (`/dev/shm`), begins with [`Shared`], and has a slot for each process that uses the device. Nothing
//! is locked: every step is one atomic operation, and a process that is killed between two of them leaves at most a
//! slot, which the next one that wants something takes back ([`State::sweep`]).
//!
//! A change of the layout is a new [`VERSION`], which is part of the file's name: processes with drivers of two versions
//! have two devices.

use crate::map::Map;
use crate::process::{self, Identity};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Version of the layout.
pub const VERSION: u32 = 1;
/// Processes that can use a device at once.
pub const SLOTS: usize = 64;

/// What the file holds.
#[repr(C)]
pub struct Shared {
    /// Whose turn it is: see [`crate::turn`].
    pub(crate) turn: AtomicU64,
    /// When the turn began, on the monotonic clock.
    pub(crate) turn_since: AtomicU64,
    /// Bytes that all processes have taken.
    memory: AtomicU64,
    /// For how long kernels of processes that have ended ran.
    past_busy: AtomicU64,
    pub(crate) slots: [Slot; SLOTS],
}

/// One process.
#[repr(C, align(64))]
pub struct Slot {
    /// Who, or 0.
    pub(crate) owner: AtomicU64,
    /// Bytes that it has taken.
    memory: AtomicU64,
    /// Threads that run blocks now.
    pub(crate) active: AtomicU32,
    /// Grids that it wants to run or runs.
    pub(crate) grids: AtomicU32,
    /// Nanoseconds for which its kernels ran.
    pub(crate) busy: AtomicU64,
    /// When the threads that run blocks now began, or 0.
    pub(crate) busy_since: AtomicU64,
}

/// A device's file, with a slot for this process.
pub struct State {
    shared: &'static Shared,
    /// This process's slot.
    pub(crate) own: usize,
    total: u64,
}

/// What a process does with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The number of the process.
    pub pid: u32,
    /// Bytes of memory that it has.
    pub memory: u64,
    /// Nanoseconds for which its kernels ran.
    pub busy: u64,
}

/// The directory of the files: `SOFTCUDA_STATE`, else one in `/dev/shm` that belongs to the user and to the driver in
/// `home` (the directory of the library): another copy of the driver has other devices.
pub fn directory(home: &Path) -> PathBuf {
    if let Some(set) = std::env::var_os("SOFTCUDA_STATE").filter(|set| !set.is_empty()) {
        return PathBuf::from(set);
    }
    // FNV-1a: the name only has to differ.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = home.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    PathBuf::from(format!("/dev/shm/softcuda-{}-{hash:016x}", rustix::process::geteuid().as_raw()))
}

fn open(directory: &Path, uuid: &[u8; 16]) -> io::Result<Map> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(directory)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory belongs to another user"));
    }
    let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    Map::open(&directory.join(format!("{name}-v{VERSION}")))
}

impl State {
    /// Joins the users of a device with so many bytes of memory.
    ///
    /// # Errors
    /// What the system says; `StorageFull` when too many processes use the device.
    pub fn join(directory: &Path, uuid: &[u8; 16], total: u64) -> io::Result<State> {
        let shared = open(directory, uuid)?.get();
        let me = process::own();
        sweep(shared);
        let free = |slot: &&Slot| slot.owner.compare_exchange(0, me, SeqCst, SeqCst).is_ok();
        let own = shared.slots.iter().position(|slot| free(&slot)).ok_or(io::ErrorKind::StorageFull)?;
        Ok(State { shared, own, total })
    }

    /// The slot of this process.
    pub(crate) fn slot(&self) -> &'static Slot {
        &self.shared.slots[self.own]
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// Takes memory.
    ///
    /// # Errors
    /// The bytes that are free, if they are fewer.
    pub fn take(&self, bytes: u64) -> Result<(), u64> {
        let try_once = || {
            let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.total);
            self.shared.memory.fetch_update(SeqCst, SeqCst, fits)
        };
        // Only who finds no room looks whether somebody who had some is dead.
        let taken = try_once().or_else(|_| {
            sweep(self.shared);
            try_once()
        });
        taken.map_err(|used| self.total - used.min(self.total))?;
        self.slot().memory.fetch_add(bytes, SeqCst);
        Ok(())
    }

    /// Gives memory back.
    pub fn give(&self, bytes: u64) {
        self.slot().memory.fetch_sub(bytes, SeqCst);
        self.shared.memory.fetch_sub(bytes, SeqCst);
    }

    /// Bytes that all processes have, those excepted that have ended.
    pub fn used(&self) -> u64 {
        sweep(self.shared);
        self.shared.memory.load(SeqCst)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let slot = self.slot();
        bury(self.shared, slot);
        slot.owner.store(0, SeqCst);
    }
}

/// Takes back the slots of processes that have ended.
pub(crate) fn sweep(shared: &Shared) {
    for slot in &shared.slots {
        let owner = slot.owner.load(SeqCst);
        if owner == 0 || process::lives(owner) {
            continue;
        }
        // Made ours first: should this process be killed now, another takes it back in the same way.
        if slot.owner.compare_exchange(owner, process::own(), SeqCst, SeqCst).is_ok() {
            bury(shared, slot);
            slot.owner.store(0, SeqCst);
        }
    }
}

fn bury(shared: &Shared, slot: &Slot) {
    slot.grids.store(0, SeqCst);
    slot.active.store(0, SeqCst);
    slot.busy_since.store(0, SeqCst);
    shared.past_busy.fetch_add(slot.busy.swap(0, SeqCst), SeqCst);
    shared.memory.fetch_sub(slot.memory.swap(0, SeqCst), SeqCst);
}

/// A device as somebody sees it who does not use it.
pub struct View(&'static Shared);

impl View {
    /// Opens the file of a device.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(directory: &Path, uuid: &[u8; 16]) -> io::Result<View> {
        Ok(View(open(directory, uuid)?.get()))
    }

    /// Who uses the device.
    pub fn processes(&self) -> Vec<Usage> {
        sweep(self.0);
        let mut all = Vec::new();
        for slot in &self.0.slots {
            let owner: Identity = slot.owner.load(SeqCst);
            if owner != 0 {
                let (memory, busy) = (slot.memory.load(SeqCst), slot.busy_until(crate::now()));
                all.push(Usage { pid: process::number(owner), memory, busy });
            }
        }
        all
    }

    /// Bytes that are taken.
    pub fn used(&self) -> u64 {
        sweep(self.0);
        self.0.memory.load(SeqCst)
    }

    /// Nanoseconds for which kernels have run since the file was made.
    pub fn busy(&self) -> u64 {
        let now = crate::now();
        let present: u64 = self.0.slots.iter().map(|slot| slot.busy_until(now)).sum();
        self.0.past_busy.load(SeqCst) + present
    }
}

impl Slot {
    fn busy_until(&self, now: u64) -> u64 {
        let since = self.busy_since.load(SeqCst);
        let running = if since == 0 { 0 } else { now.saturating_sub(since) };
        self.busy.load(SeqCst) + running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> PathBuf {
        use std::sync::atomic::AtomicU32;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, SeqCst);
        std::env::temp_dir().join(format!("softcuda-state-{}-{number}", std::process::id()))
    }

    #[test]
    fn memory_is_one_budget_and_goes_back_with_its_process() {
        let directory = directory();
        let (one, two) = (
            State::join(&directory, &[1; 16], 1000).unwrap(),
            State::join(&directory, &[1; 16], 1000).unwrap(),
        );
        let other = State::join(&directory, &[2; 16], 1000).unwrap();
        assert_ne!(one.own, two.own);
        assert_eq!(one.take(700), Ok(()));
        assert_eq!(two.take(301), Err(300));
        assert_eq!(two.take(300), Ok(()));
        assert_eq!(other.take(1000), Ok(()), "another device");
        one.give(100);
        assert_eq!(two.used(), 900);
        // As if the process of the first slot had been killed: its owner is a process that is not there.
        one.slot().owner.store(u64::from(u32::MAX >> 1) << 32 | 7, SeqCst);
        std::mem::forget(one);
        assert_eq!(two.take(700), Ok(()));
        let view = View::open(&directory, &[1; 16]).unwrap();
        let pids: Vec<_> = view.processes().iter().map(|p| (p.pid, p.memory)).collect();
        assert_eq!(pids, [(std::process::id(), 1000)]);
        drop(two);
        assert_eq!((view.used(), view.processes().len()), (0, 0));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_directory_of_ones_own_or_none() {
        let directory = directory();
        std::fs::write(&directory, "").unwrap();
        assert!(State::join(&directory, &[1; 16], 1).is_err());
        std::fs::remove_file(&directory).unwrap();
    }
}

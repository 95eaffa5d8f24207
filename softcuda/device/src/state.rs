//! The file of a device.
//!
//! It lies in memory (`/dev/shm`), begins with [`Shared`], and has a slot for each process that uses the device. What a
//! process has is in its slot; wherever a process is killed, the next one that wants something takes all of it back
//! ([`sweep`]). Nobody waits for another process here, as that may be stopped for ever: memory is counted twice, in one word
//! for all, from which it is taken exactly or not at all, and in the slots, which say what a dead process had. Who is killed
//! between the two steps leaves the word ahead of the slots; [`State::settle`] finds that when nobody is between them.
//!
//! A change of the layout is a new [`VERSION`], which is part of the file's name: processes with drivers of two versions
//! have two devices.

use crate::map::Map;
use crate::process::{self, Identity};
use crate::watch::Watch;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// Version of the layout.
pub const VERSION: u32 = 4;
/// Processes that can use a device at once.
pub const SLOTS: usize = 64;

/// What the file holds.
#[repr(C)]
pub struct Shared {
    /// Whose turn it is: see [`crate::turn`].
    pub(crate) turn: AtomicU64,
    /// When the turn began, on the monotonic clock.
    pub(crate) turn_since: AtomicU64,
    /// Bytes of memory that are taken.
    used: AtomicU64,
    /// Not 0: a process that has ended may have left [`Shared::used`] ahead of the slots.
    unsettled: AtomicU64,
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
    /// Odd while [`Shared::used`] and `memory` are being changed, one after the other.
    changes: AtomicU64,
    /// Threads that run blocks now.
    pub(crate) active: AtomicU32,
    /// Grids that it wants to run or runs.
    pub(crate) grids: AtomicU32,
    /// Nanoseconds for which its kernels ran.
    pub(crate) busy: AtomicU64,
    /// Since when its kernels have the device, or 0.
    pub(crate) busy_since: AtomicU64,
    /// Not 0: threads that run blocks are to look about ([`crate::turn`] sets [`crate::turn::WANTED`]; the lower half is the process's own).
    pub(crate) bell: AtomicU32,
}

/// A device's file, with a slot for this process.
pub struct State {
    shared: &'static Shared,
    /// This process's slot.
    pub(crate) own: usize,
    total: u64,
    /// Held by the one thread of this process that changes what is taken.
    changing: Mutex<()>,
    /// Looks after the other processes.
    watch: Watch,
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
        Ok(State { shared, own, total, changing: Mutex::new(()), watch: Watch::default() })
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
        let _threads = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // Only who finds no room looks whether somebody who had some is dead.
        self.try_take(bytes).or_else(|_| {
            self.bury_the_dead();
            self.try_take(bytes)
        })
    }

    fn try_take(&self, bytes: u64) -> Result<(), u64> {
        let _change = Change::of(self.slot());
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.total);
        let taken = self.shared.used.fetch_update(SeqCst, SeqCst, fits);
        taken.map_err(|used| self.total.saturating_sub(used))?;
        self.slot().memory.fetch_add(bytes, SeqCst);
        Ok(())
    }

    /// Gives memory back.
    pub fn give(&self, bytes: u64) {
        let _threads = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let _change = Change::of(self.slot());
        self.slot().memory.fetch_sub(bytes, SeqCst);
        self.shared.used.fetch_sub(bytes, SeqCst);
    }

    /// Bytes that all processes have, those excepted that have ended.
    pub fn used(&self) -> u64 {
        let _threads = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.bury_the_dead();
        self.shared.used.load(SeqCst)
    }

    /// Takes back what processes that have ended left in [`Shared::used`] and in no slot. While another process is between its
    /// two steps, stopped perhaps, it stays as it is until somebody comes by later. Called with `changing` held.
    fn settle(&self) {
        if self.shared.unsettled.load(SeqCst) == 0 {
            return;
        }
        // Two who settle at once see each other's change and both leave it.
        let _change = Change::of(self.slot());
        self.shared.unsettled.store(0, SeqCst);
        let others = || self.shared.slots.iter().enumerate().filter(|(i, _)| *i != self.own);
        let changes = || others().map(|(_, slot)| slot.changes.load(SeqCst)).collect::<Vec<_>>();
        let before = changes();
        let (used, had) = (self.shared.used.load(SeqCst), self.shared.memory());
        if before.iter().any(|count| count % 2 != 0) || before != changes() {
            self.shared.unsettled.store(1, SeqCst);
        } else if used > had {
            self.shared.used.fetch_sub(used - had, SeqCst);
        }
    }

    /// Called with `changing` held.
    fn bury_the_dead(&self) {
        let others = self.shared.slots.iter().enumerate().filter(|(i, _)| *i != self.own);
        let owners = others.map(|(_, slot)| slot.owner.load(SeqCst)).filter(|owner| *owner != 0);
        if self.watch.some_ended(owners) {
            sweep(self.shared);
        }
        self.settle();
    }
}

impl Shared {
    /// Bytes that all processes have.
    fn memory(&self) -> u64 {
        self.slots.iter().map(|slot| slot.memory.load(SeqCst)).sum()
    }
}

/// A change of a slot's memory and of [`Shared::used`], as long as it lives.
struct Change<'a>(&'a Slot);

impl<'a> Change<'a> {
    /// Of a slot that nobody else changes now.
    fn of(slot: &'a Slot) -> Self {
        // A process that was killed in a change left it odd.
        slot.changes.fetch_update(SeqCst, SeqCst, |count| Some((count | 1) + 2 * (count & 1))).ok();
        Change(slot)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, SeqCst);
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
    slot.bell.store(0, SeqCst);
    shared.past_busy.fetch_add(slot.busy.swap(0, SeqCst), SeqCst);
    // Before the change, which this process may not survive.
    shared.unsettled.store(1, SeqCst);
    let _change = Change::of(slot);
    shared.used.fetch_sub(slot.memory.swap(0, SeqCst), SeqCst);
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
        self.0.memory()
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
    fn a_process_that_dies_while_it_takes_memory_leaves_nothing_behind() {
        let directory = directory();
        let join = || State::join(&directory, &[1; 16], 1000).unwrap();
        let (one, two, three) = (join(), join(), join());
        // As if the first process had been killed in the middle of taking 400 bytes, and the second of giving some back.
        let dead = u64::from(u32::MAX >> 1) << 32 | 7;
        let change = Change::of(one.slot());
        one.shared.used.fetch_add(400, SeqCst);
        std::mem::forget(change);
        assert_eq!(two.take(100), Ok(()));
        let change = Change::of(two.slot());
        two.slot().memory.fetch_sub(50, SeqCst);
        std::mem::forget(change);
        assert_eq!(three.take(501), Err(500));
        one.slot().owner.store(dead, SeqCst);
        // The other one may still do its second step, so that its bytes are not taken for the dead one's.
        assert_eq!(three.take(501), Err(500));
        two.slot().owner.store(dead, SeqCst);
        assert_eq!(three.take(1000), Ok(()), "what the dead ones took is free");
        assert_eq!((three.used(), three.take(1)), (1000, Err(0)));
        std::mem::forget(one);
        std::mem::forget(two);
        let again = join();
        three.give(1000);
        assert_eq!(again.take(1000), Ok(()), "a slot that was left in a change is as good as any");
        drop((again, three));
        assert_eq!(View::open(&directory, &[1; 16]).unwrap().used(), 0);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_process_that_is_stopped_while_it_takes_memory_holds_up_nobody() {
        let directory = directory();
        let join = || State::join(&directory, &[1; 16], 1000).unwrap();
        let (one, two) = (join(), join());
        let dead = join();
        assert_eq!(dead.take(300), Ok(()));
        // As the process of the first slot leaves it that is stopped between its two steps.
        let change = Change::of(one.slot());
        one.shared.used.fetch_add(400, SeqCst);
        assert_eq!((two.take(301), two.take(300)), (Err(300), Ok(())));
        dead.slot().owner.store(u64::from(u32::MAX >> 1) << 32 | 7, SeqCst);
        std::mem::forget(dead);
        assert_eq!(two.take(301), Err(300), "what a dead one had is free meanwhile");
        assert_eq!(two.take(300), Ok(()));
        two.give(600);
        assert_eq!(two.used(), 400);
        one.slot().memory.fetch_add(400, SeqCst);
        drop(change);
        assert_eq!((two.take(600), two.used()), (Ok(()), 1000));
        drop((one, two));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn of_many_who_want_the_last_bytes_exactly_as_many_get_them_as_there_are() {
        let directory = directory();
        let states: Vec<_> = (0..4).map(|_| State::join(&directory, &[1; 16], 1000).unwrap()).collect();
        let got: u64 = std::thread::scope(|s| {
            let take = |state| move || (0..200).filter(|_| State::take(state, 3).is_ok()).count() as u64;
            let all: Vec<_> = states.iter().chain(&states).map(|state| s.spawn(take(state))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((got, states[0].used()), (333, 999));
        drop(states);
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

//! What an interprocess event is: a mark that streams of several processes pass and wait for.
//!
//! It is a file in memory that counts recordings and keeps the newest [`ENTRIES`] of them: who asked for each, and whether it was
//! passed. Who waits for a recording waits until just that one was passed, whatever others do meanwhile, or until the process
//! is dead that asked for it: what that had queued will never be done. A recording takes its place in one step, so that a
//! process which is killed at any point leaves nothing half done.

use crate::map::Page;
use crate::process::{self, Identity};
use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::thread::futex;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Version of the layout, part of the file's name.
const NAME: &str = "softcuda:event-v2";

/// Recordings that can be under way at once; who asks for one more waits for the oldest of them.
const ENTRIES: usize = 1024;
/// Living processes that can have a signal open at once.
const MEMBERS: usize = 256;

/// What the file holds.
#[repr(C)]
pub(crate) struct Words {
    /// Tells the signal from every other one, for ever. Never 0.
    id: AtomicU64,
    /// The newest recording; the first is 1.
    recorded: AtomicU32,
    /// Moves when a recording is passed.
    bell: AtomicU32,
    /// Processes that have it open, or had.
    members: [AtomicU64; MEMBERS],
    /// The place of recording `r` is `r % ENTRIES`: see [`Entry`].
    entries: [AtomicU64; ENTRIES],
}

/// A recording, the member that asked for it, and whether it was passed, in one word. 0: none yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

const PASSED: u64 = 1 << 16;

impl Entry {
    fn new(recording: u32, member: usize) -> Entry {
        Entry(u64::from(recording) << 32 | member as u64)
    }

    fn recording(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn member(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    fn is_passed(self) -> bool {
        self.0 == 0 || self.0 & PASSED != 0
    }

    fn passed(self) -> Entry {
        Entry(self.0 | PASSED)
    }
}

/// Names a signal to other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Name {
    /// The process that made it.
    pub process: u32,
    /// Its descriptor there.
    pub file: i32,
    /// [`Signal`]s of one descriptor number differ in it.
    pub id: u64,
}

/// See the module.
pub struct Signal {
    page: Page<Words>,
    name: Name,
    /// This process among the members.
    member: usize,
    /// Kept by who made it, for the others to find.
    _file: OwnedFd,
}

/// How long a wait sleeps before it looks whether the other process lives: 20 ms.
const LOOK: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Signal {
    /// A new one, never recorded.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Signal> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let file = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, size_of::<Words>() as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let page: Page<Words> = Page::map(&file)?;
        let id = crate::now() << 8 | u64::from(NEXT.fetch_add(1, SeqCst) & 0xff);
        page.get().id.store(id, SeqCst);
        let name = Name { process: std::process::id(), file: file.as_raw_fd(), id };
        let member = page.get().join()?;
        Ok(Signal { page, name, member, _file: file })
    }

    /// One that another process made.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` if the name leads to anything else by now; `StorageFull` if too many processes have
    /// it open.
    pub fn open(name: Name) -> io::Result<Signal> {
        let there = PathBuf::from(format!("/proc/{}/fd/{}", name.process, name.file));
        // Looked at first: opening a pipe or a device that the number stands for by now could do anything.
        if !std::fs::read_link(&there)?.to_string_lossy().starts_with(&format!("/memfd:{NAME}")) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file: OwnedFd = rustix::fs::open(&there, flags, rustix::fs::Mode::empty())?;
        let size = File::from(file.try_clone()?).metadata()?.len();
        // Without the seals its maker could cut it short under the mapping.
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SEALS) || size != size_of::<Words>() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let page: Page<Words> = Page::map(&file)?;
        if name.id == 0 || page.get().id.load(SeqCst) != name.id {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let member = page.get().join()?;
        Ok(Signal { page, name, member, _file: file })
    }

    /// How other processes find it.
    pub fn name(&self) -> Name {
        self.name
    }

    /// A new recording, which this process will [`Signal::pass`]. Waits if too many are under way.
    pub fn record(&self) -> u32 {
        let words = self.page.get();
        loop {
            let before = words.recorded.load(SeqCst);
            let recording = before.wrapping_add(1);
            let found = words.entry(recording);
            if found.recording() != recording {
                if !is_newer(recording, found.recording()) {
                    // Others were quicker by a whole round.
                    continue;
                }
                if !words.is_settled(found) {
                    self.wait(found.recording(), || false);
                    continue;
                }
                let new = Entry::new(recording, self.member);
                if !words.replace(recording, found, new) {
                    continue;
                }
                let _ = words.recorded.compare_exchange(before, recording, SeqCst, SeqCst);
                return recording;
            }
            // Somebody has taken this one and not said so yet; perhaps it never will.
            let _ = words.recorded.compare_exchange(before, recording, SeqCst, SeqCst);
        }
    }

    /// The newest recording of any process; none if there never was one.
    pub fn newest(&self) -> Option<u32> {
        Some(self.page.get().recorded.load(SeqCst)).filter(|recording| *recording != 0)
    }

    /// A recording is passed.
    pub fn pass(&self, recording: u32) {
        let words = self.page.get();
        let found = words.entry(recording);
        if found.recording() == recording && words.replace(recording, found, found.passed()) {
            words.bell.fetch_add(1, SeqCst);
            // Nobody sleeping, or a system that refuses: the others look again by themselves.
            let _ = futex::wake(&words.bell, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Whether a recording is passed, or never will be.
    pub fn is_passed(&self, recording: u32) -> bool {
        let words = self.page.get();
        let found = words.entry(recording);
        // A newer one has its place only if it is over.
        is_newer(found.recording(), recording) || (found.recording() == recording && words.is_settled(found))
    }

    /// Returns when a recording is passed, or `over` says so, which is asked now and then.
    pub fn wait(&self, recording: u32, over: impl Fn() -> bool) {
        let bell = &self.page.get().bell;
        loop {
            let seen = bell.load(SeqCst);
            if self.is_passed(recording) || over() {
                return;
            }
            // An error (a signal, the time is up, another value) is a reason to look again.
            let _ = futex::wait(bell, futex::Flags::empty(), seen, Some(&LOOK));
        }
    }
}

impl Words {
    fn place(&self, recording: u32) -> &AtomicU64 {
        &self.entries[recording as usize % ENTRIES]
    }

    fn entry(&self, recording: u32) -> Entry {
        Entry(self.place(recording).load(SeqCst))
    }

    fn replace(&self, recording: u32, old: Entry, new: Entry) -> bool {
        self.place(recording).compare_exchange(old.0, new.0, SeqCst, SeqCst).is_ok()
    }

    /// Whether an entry's recording is over: passed, or of a dead process.
    fn is_settled(&self, entry: Entry) -> bool {
        if entry.is_passed() {
            return true;
        }
        let Some(member) = self.members.get(entry.member()) else { return true };
        let owner: Identity = member.load(SeqCst);
        owner != process::own() && !process::lives(owner)
    }

    /// A place among the members: the one that this process has, a free one, or a dead process's, whose recordings are over
    /// before it is anybody else's.
    fn join(&self) -> io::Result<usize> {
        let me = process::own();
        let is_mine = |member: &AtomicU64| member.load(SeqCst) == me;
        if let Some(mine) = self.members.iter().position(is_mine) {
            return Ok(mine);
        }
        for (i, member) in self.members.iter().enumerate() {
            let owner: Identity = member.load(SeqCst);
            if owner != 0 && process::lives(owner) {
                continue;
            }
            for entry in self.entries.iter().filter(|_| owner != 0) {
                let found = Entry(entry.load(SeqCst));
                if found.member() == i && !found.is_passed() {
                    // If it changes meanwhile, another process does the same.
                    let _ = entry.compare_exchange(found.0, found.passed().0, SeqCst, SeqCst);
                }
            }
            if member.compare_exchange(owner, me, SeqCst, SeqCst).is_ok() {
                return Ok(i);
            }
        }
        Err(io::ErrorKind::StorageFull.into())
    }
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Whether one count is ahead of another; counts go round.
fn is_newer(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is not there.
    const DEAD: Identity = (u32::MAX as u64 >> 1) << 32 | 7;

    #[test]
    fn a_recording_is_passed_for_everybody_who_opened_the_signal() {
        let made = Signal::new().unwrap();
        assert_eq!(made.newest(), None);
        let opened = Signal::open(made.name()).unwrap();
        let first = made.record();
        assert_eq!((opened.newest(), opened.is_passed(first)), (Some(first), false));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| opened.wait(first, || false));
            made.pass(first);
            waiter.join().unwrap();
        });
    }

    #[test]
    fn each_recording_is_waited_for_by_itself() {
        let made = Signal::new().unwrap();
        let opened = Signal::open(made.name()).unwrap();
        let recordings: Vec<u32> =
            (0..6).map(|i| if i % 2 == 0 { &made } else { &opened }.record()).collect();
        made.pass(recordings[4]);
        made.pass(recordings[1]);
        let passed = |signal: &Signal| recordings.iter().map(|r| signal.is_passed(*r)).collect::<Vec<_>>();
        assert_eq!(passed(&opened), [false, true, false, false, true, false]);
        opened.wait(recordings[4], || false);
        opened.wait(recordings[5], || true);
        recordings.iter().for_each(|r| opened.pass(*r));
        assert_eq!(passed(&made), [true; 6]);
    }

    #[test]
    fn who_asks_for_more_recordings_than_there_are_places_waits_for_the_oldest() {
        let signal = Signal::new().unwrap();
        let recordings: Vec<u32> = (0..ENTRIES).map(|_| signal.record()).collect();
        recordings[1..].iter().for_each(|r| signal.pass(*r));
        std::thread::scope(|scope| {
            let more = scope.spawn(|| signal.record());
            while signal.newest() != Some(recordings[ENTRIES - 1]) {
                std::thread::yield_now();
            }
            assert!(!signal.is_passed(recordings[0]));
            signal.pass(recordings[0]);
            let more = more.join().unwrap();
            assert!(signal.is_passed(recordings[0]) && !signal.is_passed(more));
        });
    }

    #[test]
    fn recordings_of_many_at_once_are_all_different() {
        let made = Signal::new().unwrap();
        let mut all: Vec<u32> = std::thread::scope(|scope| {
            let record =
                || scope.spawn(|| (0..3000).map(|_| made.record()).inspect(|r| made.pass(*r)).collect());
            let threads: Vec<_> = (0..4).map(|_| record()).collect();
            threads.into_iter().flat_map(|t| -> Vec<u32> { t.join().unwrap() }).collect()
        });
        all.sort_unstable();
        assert_eq!(all, (1..=12000).collect::<Vec<u32>>());
        assert!(all.iter().all(|r| made.is_passed(*r)));
    }

    #[test]
    fn what_a_dead_process_recorded_is_waited_for_by_nobody() {
        let signal = Signal::new().unwrap();
        let recording = signal.record();
        let words = signal.page.get();
        words.members[signal.member].store(DEAD, SeqCst);
        signal.wait(recording, || false);
        assert!(signal.is_passed(recording));
        // Killed between its two steps: the place is taken, the count is not moved.
        words.place(2).store(Entry::new(2, signal.member).0, SeqCst);
        let other = Signal::open(signal.name()).unwrap();
        assert_eq!((other.member, other.record()), (signal.member, 3));
        assert!(other.is_passed(1) && other.is_passed(2) && !other.is_passed(3));
    }

    #[test]
    fn a_name_of_something_else_opens_nothing() {
        let made = Signal::new().unwrap();
        let name = made.name();
        assert!(Signal::open(Name { id: name.id ^ 1, ..name }).is_err());
        assert!(Signal::open(Name { file: 0, ..name }).is_err());
        drop(made);
        assert!(Signal::open(name).is_err());
    }
}

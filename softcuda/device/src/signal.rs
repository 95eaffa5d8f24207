//! What an interprocess event is: a mark that streams of several processes pass and wait for.
//!
//! It is a file in memory with two counts: recordings that were asked for, and the newest one that was passed. Who waits
//! for a recording waits until one as new was passed, or until the process is dead that asked for the newest: what it had
//! queued will never be done.

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
const NAME: &str = "softcuda:event-v1";

/// What the file holds.
#[repr(C)]
pub(crate) struct Words {
    /// Tells the signal from every other one, for ever. Never 0.
    id: AtomicU64,
    /// Who asked for the newest recording.
    recorder: AtomicU64,
    /// The newest recording; the first is 1.
    recorded: AtomicU32,
    /// The newest recording that was passed.
    passed: AtomicU32,
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
        Ok(Signal { page, name, _file: file })
    }

    /// One that another process made.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` if the name leads to anything else by now.
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
        Ok(Signal { page, name, _file: file })
    }

    /// How other processes find it.
    pub fn name(&self) -> Name {
        self.name
    }

    /// A new recording, which this process will [`Signal::pass`].
    pub fn record(&self) -> u32 {
        let words = self.page.get();
        words.recorder.store(process::own(), SeqCst);
        words.recorded.fetch_add(1, SeqCst).wrapping_add(1)
    }

    /// The newest recording of any process; none if there never was one.
    pub fn newest(&self) -> Option<u32> {
        Some(self.page.get().recorded.load(SeqCst)).filter(|recording| *recording != 0)
    }

    /// A recording is passed.
    pub fn pass(&self, recording: u32) {
        let words = self.page.get();
        let newer = |passed: u32| is_newer(recording, passed).then_some(recording);
        if words.passed.fetch_update(SeqCst, SeqCst, newer).is_ok() {
            // Nobody sleeping, or a system that refuses: the others look again by themselves.
            let _ = futex::wake(&words.passed, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Whether a recording is passed, or never will be.
    pub fn is_passed(&self, recording: u32) -> bool {
        let words = self.page.get();
        if !is_newer(recording, words.passed.load(SeqCst)) {
            return true;
        }
        let recorder: Identity = words.recorder.load(SeqCst);
        if recorder == process::own() || process::lives(recorder) {
            return false;
        }
        // It may have passed it just before it ended; in any case nobody else will. Unless somebody recorded anew.
        words.recorder.load(SeqCst) == recorder || !is_newer(recording, words.passed.load(SeqCst))
    }

    /// Returns when a recording is passed.
    pub fn wait(&self, recording: u32) {
        let passed = &self.page.get().passed;
        loop {
            let seen = passed.load(SeqCst);
            if self.is_passed(recording) {
                return;
            }
            // An error (a signal, the time is up, another value) is a reason to look again.
            let _ = futex::wait(passed, futex::Flags::empty(), seen, Some(&LOOK));
        }
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

    #[test]
    fn a_recording_is_passed_for_everybody_who_opened_the_signal() {
        let made = Signal::new().unwrap();
        assert_eq!(made.newest(), None);
        let opened = Signal::open(made.name()).unwrap();
        let first = made.record();
        assert_eq!((opened.newest(), opened.is_passed(first)), (Some(first), false));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| opened.wait(first));
            made.pass(first);
            waiter.join().unwrap();
        });
        let (second, third) = (opened.record(), opened.record());
        made.pass(third);
        made.pass(second);
        assert!(opened.is_passed(second) && opened.is_passed(third), "an older one does not undo a newer");
    }

    #[test]
    fn what_a_dead_process_recorded_is_waited_for_by_nobody() {
        let signal = Signal::new().unwrap();
        let recording = signal.record();
        signal.page.get().recorder.store(u64::from(u32::MAX >> 1) << 32 | 7, SeqCst);
        signal.wait(recording);
        assert!(signal.is_passed(recording));
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

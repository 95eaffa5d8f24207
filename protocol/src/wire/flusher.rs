//! A thread that pushes posts where they are not seen at once and the program makes no further call. It starts with
//! the first post and sleeps while nothing is to be pushed.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::{Arc, Weak};

use rustix::thread::futex;

use super::client::{ClientLink, GATHER_TIME};
use super::threads::spawn_quiet;

const IDLE: u32 = 0;
const ARMED: u32 = 1;
const STOPPED: u32 = 2;

/// The handle that posting threads have.
pub struct Flusher {
    word: Arc<AtomicU32>,
}

impl Flusher {
    /// Starts the thread.
    pub fn start(link: Weak<ClientLink>) -> io::Result<Self> {
        let word = Arc::new(AtomicU32::new(IDLE));
        let theirs = word.clone();
        spawn_quiet("gpupool-flush", move || run(&theirs, &link))?;
        Ok(Self { word })
    }

    /// Has everything posted so far pushed within some 20 µs. The caller has made a sequentially consistent fence
    /// after publishing (as `Producer::finish` does).
    #[inline]
    pub fn arm(&self) {
        if self.word.load(Relaxed) == IDLE && self.word.compare_exchange(IDLE, ARMED, SeqCst, Relaxed).is_ok()
        {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.word.store(STOPPED, SeqCst);
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }
}

fn run(word: &AtomicU32, link: &Weak<ClientLink>) {
    // The default slack of 50 µs would more than double the time that posts are held back.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
    loop {
        while word.load(Acquire) == IDLE {
            let _ = futex::wait(word, futex::Flags::PRIVATE, IDLE, None);
        }
        std::thread::sleep(GATHER_TIME);
        if word.compare_exchange(ARMED, IDLE, SeqCst, Relaxed).is_err() {
            return;
        }
        // Disarmed first: who posts from here on arms it again.
        std::sync::atomic::fence(SeqCst);
        let Some(link) = link.upgrade() else { return };
        link.flush_quietly();
    }
}

//! Pairs of processes that work as a client and its worker do, over bare shared memory: a step of posts and a round trip, each
//! side looking for its news before it sleeps. What many of them get shows how the operating system shares out the
//! processors.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::event::Timespec;
use rustix::thread::futex;

use crate::crowd::{STEP, client};
use crate::raw::{self, END, LOOK, RECORD_WORDS};
use crate::shared::Page;

/// Records of a step: the posts, and the one that is answered.
const RECORDS: u64 = STEP as u64 + 1;
/// The least time that a side looks: news of a peer that runs takes less.
const LOOK_LEAST: Duration = Duration::from_micros(2);
/// The longest wait for the other side. Pairs are made one after the other before all are let go.
const PATIENCE: Duration = Duration::from_secs(60);
/// The measuring process and its peer, as [`Page::sleeps`] counts them.
const WORKER: usize = 0;
const PEER: usize = 1;

/// Says how many steps it has made when it was let go for so long.
pub fn work(seconds: u16) -> anyhow::Result<()> {
    let page = Page::create()?;
    let fd = page.file.as_ref().context("no file of shared memory")?.as_raw_fd();
    let mut peer = raw::peer(&["raw-work-peer", &fd.to_string()])?;
    let (mut wait, mut posted) = (Wait::default(), 0);
    let result = client(|| {
        let end = Instant::now() + Duration::from_secs(seconds.into());
        let mut steps = 0;
        while Instant::now() < end {
            for _ in 0..RECORDS {
                posted += 1;
                (0..RECORD_WORDS).for_each(|word| page.record(posted, word).store(posted, Relaxed));
                page.ping().store(posted, Release);
                wake(page.sleeps(PEER), page.futex(WORKER));
            }
            wait.until(page.pong(), page.futex(PEER), page.sleeps(WORKER), |pong| pong == posted)?;
            steps += 1;
        }
        Ok(steps)
    });
    page.ping().store(END, Release);
    wake(page.sleeps(PEER), page.futex(WORKER));
    raw::finish(&mut peer)?;
    result
}

/// The other side: reads records, and answers the last one of each step.
pub fn peer(fd: i32) -> anyhow::Result<()> {
    let page = Page::inherited(fd)?;
    let (mut wait, mut taken) = (Wait::default(), 0);
    loop {
        let posted = match page.ping().load(Acquire) {
            END => return Ok(()),
            posted if posted != taken => posted,
            _ => {
                wait.until(page.ping(), page.futex(WORKER), page.sleeps(PEER), |ping| ping != taken)?;
                continue;
            }
        };
        while taken < posted {
            taken += 1;
            let sum: u64 = (0..RECORD_WORDS).map(|word| page.record(taken, word).load(Relaxed)).sum();
            ensure!(sum == RECORD_WORDS as u64 * taken, "record {taken} has the sum {sum}");
        }
        if taken.is_multiple_of(RECORDS) {
            page.pong().store(taken, Release);
            wake(page.sleeps(WORKER), page.futex(PEER));
        }
    }
}

/// Wakes the other side if it sleeps at the word whose half is `futex`, which has been changed.
fn wake(sleeps: &AtomicU32, futex: &AtomicU32) {
    fence(SeqCst);
    if sleeps.load(Relaxed) != 0 {
        // Nothing can be done about a failure; the other side looks again by itself.
        let _ = futex::wake(futex, futex::Flags::empty(), 1);
    }
}

/// How long looking has paid lately: the pool's way of waiting.
struct Wait {
    look: Duration,
    waits: u32,
}

impl Default for Wait {
    fn default() -> Self {
        Self { look: LOOK, waits: 0 }
    }
}

impl Wait {
    /// Waits until the word is as it is wanted; at most for [`PATIENCE`] in which nothing happens.
    fn until(
        &mut self,
        word: &AtomicU64,
        half: &AtomicU32,
        sleeps: &AtomicU32,
        wanted: impl Fn(u64) -> bool,
    ) -> anyhow::Result<()> {
        let there = || wanted(word.load(Acquire));
        self.waits += 1;
        let limit = if self.waits.is_multiple_of(64) { LOOK } else { self.look };
        let start = Instant::now();
        loop {
            for _ in 0..16 {
                if there() {
                    let enough = 2 * start.elapsed() + LOOK_LEAST;
                    self.look = self.look.max(enough.min(LOOK));
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= limit {
                break;
            }
        }
        self.look = (self.look / 2).max(LOOK_LEAST);
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        loop {
            let seen = half.load(Acquire);
            sleeps.store(1, Relaxed);
            fence(SeqCst);
            let early = there();
            if !early {
                let slept = futex::wait(half, futex::Flags::empty(), seen, Some(&patience));
                ensure!(slept != Err(rustix::io::Errno::TIMEDOUT) || there(), "the other side does nothing");
            }
            sleeps.store(0, Relaxed);
            if early || there() {
                return Ok(());
            }
        }
    }
}

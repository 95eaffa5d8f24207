//! Whose kernels run.
//!
//! Kernels of one process at a time have the device; within a process they run side by side. A process that wants the
//! device takes the turn when the one that has it has no kernel, is dead, or has had it for a time slice. Taking is two
//! steps: the turn is *claimed* and the bells of all other processes are rung, whereupon their threads stop in the next loop or at
//! the end of the block that they run, and when none of them runs any more it is *held* and kernels go on. Threads of a
//! stopped process do not run: nobody waits for them. When it goes on, they hear the bell beside whoever has the turn then.
//!
//! Threads count themselves as running first and look whether they have the turn then; who claims it changes the turn
//! first and looks whether anybody runs then. So one of the two sees the other.

use crate::state::{SLOTS, State};
use crate::trace::Trace;
use crate::{now, process, state};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// The turn in one word: 0, or 1 + the slot, and whether it is held or only claimed. The upper bits count changes, so that
/// one that comes back is not taken for one that stayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word(u64);

const HELD: u64 = 1 << 16;
const COUNT: u32 = 17;

impl Word {
    fn slot(self) -> Option<usize> {
        ((self.0 & 0xffff) as usize).checked_sub(1).filter(|slot| *slot < SLOTS)
    }

    fn is(self, slot: usize) -> bool {
        self.slot() == Some(slot)
    }

    fn held_by(self, slot: usize) -> bool {
        self.is(slot) && self.0 & HELD != 0
    }

    fn claimed(self, slot: usize) -> Word {
        Word((self.0 >> COUNT).wrapping_add(1) << COUNT | (slot as u64 + 1))
    }

    fn held(self) -> Word {
        Word(self.0 | HELD)
    }
}

/// In a bell: somebody else wants the turn.
pub(crate) const WANTED: u32 = 1 << 31;

/// This process's part in the turns of a device.
pub struct Turn {
    state: Arc<State>,
    /// Nanoseconds.
    slice: u64,
    /// When the turn was last taken; only for the log.
    taken: AtomicU64,
    trace: Option<Arc<Trace>>,
    device: u32,
}

impl Turn {
    /// Turns of so many nanoseconds at a device, whose number is for the log.
    pub fn new(state: Arc<State>, slice: u64, device: u32, trace: Option<Arc<Trace>>) -> Turn {
        Turn { state, slice, taken: AtomicU64::new(0), trace, device }
    }

    /// A grid is about to run. Until [`Turn::leave`] the process counts as one with work.
    pub fn enter(&self) {
        self.state.slot().grids.fetch_add(1, SeqCst);
    }

    /// A grid has run.
    pub fn leave(&self) {
        if self.state.slot().grids.fetch_sub(1, SeqCst) == 1 {
            self.not_busy(now());
        }
    }

    /// The calling thread is about to run blocks; returns when it may.
    pub fn begin(&self) {
        let slot = self.state.slot();
        loop {
            slot.active.fetch_add(1, SeqCst);
            if self.word().held_by(self.state.own) {
                if slot.busy_since.load(SeqCst) == 0 {
                    // Of several threads the first one.
                    let _ = slot.busy_since.compare_exchange(0, now(), SeqCst, SeqCst);
                }
                return;
            }
            self.end();
            self.not_busy(self.state.shared().turn_since.load(SeqCst));
            self.wait();
        }
    }

    /// The calling thread has run its blocks. While the process keeps the turn its kernels count as running, also where all of
    /// their threads wait for something.
    pub fn end(&self) {
        self.state.slot().active.fetch_sub(1, SeqCst);
    }

    /// Kernels of this process run no more, since some time.
    fn not_busy(&self, end: u64) {
        let slot = self.state.slot();
        let since = slot.busy_since.swap(0, SeqCst);
        if since != 0 {
            slot.busy.fetch_add(end.min(now()).saturating_sub(since), SeqCst);
        }
    }

    /// Whether another process wants the device: a thread between two blocks then ends, and begins again.
    pub fn is_lost(&self) -> bool {
        !self.word().held_by(self.state.own)
    }

    /// A word of this process that is not 0 while threads that run blocks are to call [`Turn::heed`] now and then. Its lower 16 bits
    /// are the process's own.
    pub fn bell(&self) -> &AtomicU32 {
        &self.state.slot().bell
    }

    /// The calling thread runs blocks and has seen the bell: it waits for the next turn if this one is lost.
    pub fn heed(&self) {
        if !self.is_lost() {
            // Rung late; but nobody may miss it who claims the turn right now.
            self.bell().fetch_and(!WANTED, SeqCst);
            if !self.is_lost() {
                return;
            }
            self.bell().fetch_or(WANTED, SeqCst);
        }
        self.end();
        self.begin();
    }

    fn word(&self) -> Word {
        Word(self.state.shared().turn.load(SeqCst))
    }

    /// Waits until this process holds the turn.
    fn wait(&self) {
        let mut looks = 0u32;
        loop {
            let word = self.word();
            if word.held_by(self.state.own) {
                return;
            }
            if word.is(self.state.own) {
                self.try_hold(word, looks);
            } else if self.may_claim(word, looks) {
                self.try_claim(word);
                continue;
            }
            looks = looks.saturating_add(1);
            match looks {
                0..100 => std::hint::spin_loop(),
                100..120 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Whether who has the turn must give it.
    fn may_claim(&self, word: Word, looks: u32) -> bool {
        let Some(slot) = word.slot() else { return true };
        let holder = &self.state.shared().slots[slot];
        let owner = holder.owner.load(SeqCst);
        // Asking the system takes a while, so not at every look.
        let gone = || owner == 0 || (looks.is_multiple_of(16) && !process::lives(owner));
        // Who has claimed it has not run yet.
        if word.0 & HELD == 0 {
            return gone() || (looks % 64 == 63 && process::is_stopped(owner));
        }
        let idle = holder.grids.load(SeqCst) == 0 && holder.active.load(SeqCst) == 0;
        let over = now().saturating_sub(self.state.shared().turn_since.load(SeqCst)) >= self.slice;
        idle || over || gone()
    }

    fn try_claim(&self, word: Word) {
        let shared = self.state.shared();
        let claimed = word.claimed(self.state.own);
        if shared.turn.compare_exchange(word.0, claimed.0, SeqCst, SeqCst).is_ok() {
            shared.turn_since.fetch_max(now(), SeqCst);
            let others = shared.slots.iter().enumerate().filter(|(i, _)| *i != self.state.own);
            for (_, slot) in others.filter(|(_, slot)| slot.owner.load(SeqCst) != 0) {
                slot.bell.fetch_or(WANTED, SeqCst);
            }
        }
    }

    /// Holds what was claimed, if nobody else runs any more.
    fn try_hold(&self, word: Word, looks: u32) {
        let shared = self.state.shared();
        let others = shared.slots.iter().enumerate().filter(|(i, _)| *i != self.state.own);
        let active = others.filter(|(_, slot)| slot.active.load(SeqCst) > 0);
        let mut owners = active.map(|(_, slot)| slot.owner.load(SeqCst)).filter(|owner| *owner != 0);
        // Asking the system takes a while, so not at every look.
        if owners.any(|owner| !(looks % 64 == 63 && process::is_stopped(owner))) {
            state::sweep(shared);
            return;
        }
        // First, since who sees the turn held looks at once for how long; and never back, as another thread of this process
        // may be at the same point.
        let now = now();
        shared.turn_since.fetch_max(now, SeqCst);
        // Whoever wants the turn from now on rings anew, as it must be held first.
        self.bell().fetch_and(!WANTED, SeqCst);
        if shared.turn.compare_exchange(word.0, word.held().0, SeqCst, SeqCst).is_ok() {
            if let Some(trace) = &self.trace {
                trace.turn(self.device, now);
            }
            self.taken.store(now, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    fn pair(name: &str, slice: u64) -> (Turn, Turn, std::path::PathBuf) {
        let directory = std::env::temp_dir().join(format!("softcuda-turn-{name}-{}", std::process::id()));
        let turn = || {
            let state = Arc::new(State::join(&directory, &[3; 16], 1).unwrap());
            Turn::new(state, slice, 0, None)
        };
        (turn(), turn(), directory)
    }

    #[test]
    fn blocks_of_two_processes_never_run_at_once_and_both_get_on() {
        let (one, two, directory) = pair("exclusive", 200_000);
        let (running, clashes, stop) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        let work = |turn: &Turn, mark: u32| {
            let mut blocks = 0u32;
            turn.enter();
            while !stop.load(SeqCst) {
                turn.begin();
                // Each side counts in its own half of the word.
                let before = running.fetch_add(mark, SeqCst);
                let other = if mark == 1 { before >> 16 } else { before & 0xffff };
                clashes.fetch_add(u32::from(other != 0), SeqCst);
                std::hint::black_box((0..500).sum::<u32>());
                running.fetch_sub(mark, SeqCst);
                turn.end();
                blocks += 1;
            }
            turn.leave();
            blocks
        };
        let done = std::thread::scope(|s| {
            let threads = [(&one, 1), (&one, 1), (&two, 1 << 16), (&two, 1 << 16)];
            let all = threads.map(|(turn, mark)| s.spawn(move || work(turn, mark)));
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(300) {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, SeqCst);
            all.map(|t| t.join().unwrap())
        });
        assert_eq!(clashes.load(SeqCst), 0);
        assert!(done.iter().all(|blocks| *blocks > 0), "{done:?}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn who_runs_a_block_hears_that_another_wants_the_turn_and_gets_it_back() {
        let (one, two, directory) = pair("bell", 1_000_000);
        one.enter();
        one.begin();
        assert_eq!(one.bell().load(SeqCst), 0);
        one.bell().fetch_or(WANTED, SeqCst);
        one.heed();
        assert_eq!(one.bell().load(SeqCst), 0, "rung for nothing");
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                two.enter();
                two.begin();
                done.store(true, SeqCst);
                two.end();
                two.leave();
            });
            // A block without end.
            while !done.load(SeqCst) {
                if one.bell().load(SeqCst) != 0 {
                    one.heed();
                    assert!(!one.is_lost());
                }
            }
        });
        one.end();
        one.leave();
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn who_has_work_keeps_the_turn_for_a_slice_and_who_has_none_does_not() {
        let (one, two, directory) = pair("slice", 50_000_000);
        one.enter();
        one.begin();
        one.end();
        assert!(!one.is_lost());
        let asked = Instant::now();
        two.enter();
        two.begin();
        assert!(asked.elapsed() >= Duration::from_millis(40), "the other one has work");
        assert!(one.is_lost());
        two.end();
        two.leave();
        // Nobody works: at once.
        let asked = Instant::now();
        one.begin();
        assert!(asked.elapsed() < Duration::from_millis(40));
        one.end();
        one.leave();
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_process_is_busy_while_its_grids_have_the_turn() {
        let (one, two, directory) = pair("busy", 1_000_000);
        let busy = |turn: &Turn| turn.state.slot().busy.load(SeqCst);
        let began = now();
        one.enter();
        one.begin();
        // Its threads wait for something, between two looks.
        one.end();
        std::thread::sleep(Duration::from_millis(20));
        one.begin();
        one.end();
        let lost = now();
        two.enter();
        two.begin();
        std::thread::sleep(Duration::from_millis(20));
        two.end();
        two.leave();
        one.begin();
        one.end();
        assert!((20_000_000..=now() - began).contains(&busy(&one)), "{}", busy(&one));
        assert!((20_000_000..=now() - lost).contains(&busy(&two)), "{}", busy(&two));
        assert!(busy(&one) + busy(&two) <= now() - began, "never both at once");
        one.leave();
        assert!(busy(&one) + busy(&two) <= now() - began);
        drop((one, two));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn nobody_waits_for_the_threads_of_a_stopped_process() {
        let (one, two, directory) = pair("stopped", 1_000_000);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let stopped = process::identity(child.id()).unwrap();
        while !process::is_stopped(stopped) {
            std::thread::yield_now();
        }
        // In the middle of a block; and once with the turn claimed and not held.
        let own = one.state.slot().owner.swap(stopped, SeqCst);
        one.enter();
        one.begin();
        two.begin();
        assert!(one.is_lost());
        two.end();
        one.try_claim(two.word());
        two.begin();
        two.end();
        one.end();
        one.leave();
        one.state.slot().owner.store(own, SeqCst);
        child.kill().unwrap();
        child.wait().unwrap();
        drop((one, two));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_turn_of_a_dead_process_is_free() {
        let (one, two, directory) = pair("dead", u64::MAX);
        one.enter();
        one.begin();
        one.state.slot().owner.store(u64::from(u32::MAX >> 1) << 32 | 7, SeqCst);
        two.begin();
        assert!(one.is_lost());
        two.end();
        std::mem::forget(one);
        std::fs::remove_dir_all(directory).unwrap();
    }
}

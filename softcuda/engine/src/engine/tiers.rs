//! Which code a launch gets while the best one is not made.
//!
//! Vector code of a long kernel takes a hundred times as long to make as code for one thread at a time, and megabytes.
//! So long kernels begin with the latter. When one has run for about as long as its vectors take to make, a thread beside
//! makes them, and the first launch after that has them, and so have the blocks that a grid has not started by then: they become a
//! grid of their own. So programs that run each of their kernels once, as
//! most tests do, never wait for vectors. Blocks that have been started end with the code that they began with.
#![forbid(unsafe_code)]

use super::compiler::Compiler;
use super::gate::Gate;
use super::quiet::Quiet;
use super::{Grid, GridState, native_stack};
use crate::codegen::Variant;
use crate::ir::{Function, Op};
use crate::kernel::{Kernel, Recipe};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Native stack of the thread that compiles.
const STACK: usize = 16 << 20;

/// Lanes that the numbers below are for.
const LANES: u64 = 32;

/// When vectors are put off. `SOFTCUDA_CODEGEN` chooses: `vector` never, `tiers` always and until the first launch is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Operations of a kernel whose vectors are made at once: they take some 50 ms at most.
    at_once: u64,
    /// Operations of the longest kernel for which vectors are made at all: the compiler needs some 300 MB for these.
    at_most: u64,
    /// How long vectors take to make, for each operation.
    cost: Duration,
}

impl Policy {
    pub fn from_environment() -> Policy {
        let usual = Policy { at_once: 200, at_most: 4000, cost: Duration::from_micros(500) };
        match std::env::var("SOFTCUDA_CODEGEN").as_deref() {
            Ok("vector") => Policy { at_once: u64::MAX, ..usual },
            Ok("tiers") => Policy { at_once: 0, cost: Duration::ZERO, ..usual },
            _ => usual,
        }
    }

    /// Whether and for how long the vectors of a kernel are put off, given its operations on vectors of [`LANES`].
    fn puts_off(&self, operations: u64) -> Option<Duration> {
        if operations <= self.at_once {
            None
        } else if operations > self.at_most {
            Some(Duration::MAX)
        } else {
            Some(self.cost * operations as u32)
        }
    }
}

/// What counts for the time that it takes to make vectors of a kernel, in operations of [`LANES`] lanes.
fn operations(f: &Function, variant: Variant) -> u64 {
    let weight = |op: &Op| match op {
        // All lanes' operands go through memory.
        Op::Collective { d, a, .. } => (d.len() + a.len()) as u64,
        _ => 1,
    };
    let all: u64 = f.blocks.iter().flat_map(|b| &b.insts).map(|i| weight(&i.op)).sum();
    (all * u64::from(variant.width)).div_ceil(LANES)
}

/// Vectors that a kernel does without for now.
#[derive(Debug)]
pub struct PutOff {
    /// The code that it would have.
    pub best: Variant,
    /// In nanoseconds: when the kernel has run for so long, they are made.
    until: u64,
    /// How long it has run, in nanoseconds.
    spent: AtomicU64,
    asked: AtomicBool,
    made: AtomicBool,
}

impl PutOff {
    /// What is put off for this kernel, if its vectors are.
    pub fn of(policy: &Policy, kernel: &Function, best: Variant) -> Option<PutOff> {
        let until = policy.puts_off(operations(kernel, best)).filter(|_| best.mode.groups())?;
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        Some(PutOff::until(best, until))
    }

    fn until(best: Variant, until: u64) -> PutOff {
        let no = || AtomicBool::new(false);
        PutOff { best, until, spent: AtomicU64::new(0), asked: no(), made: no() }
    }

    /// The vectors can be had from the kernel.
    pub fn set_made(&self) {
        self.made.store(true, Ordering::Release);
    }

    pub fn is_made(&self) -> bool {
        self.made.load(Ordering::Acquire)
    }

    /// Whether it no longer matters how long the kernel runs.
    fn is_settled(&self) -> bool {
        self.until == u64::MAX || self.asked.load(Ordering::Relaxed)
    }

    /// Adds to the time that the kernel has run; whether its vectors are to be made now. True once.
    fn is_due(&self, ran: Duration) -> bool {
        let ran = ran.as_nanos() as u64;
        let spent = self.spent.fetch_add(ran, Ordering::Relaxed).saturating_add(ran);
        spent >= self.until && !self.is_settled() && !self.asked.swap(true, Ordering::Relaxed)
    }
}

/// What waits to be made.
#[derive(Default)]
pub struct Background {
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// There is a thread.
    busy: bool,
}

/// It holds no kernel: a module that is unloaded meanwhile goes at once.
struct Job {
    kernel: Weak<Kernel>,
    recipe: Recipe,
}

impl Background {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when nothing waits to be made.
    pub fn settle(&self) {
        let mut state = self.lock();
        while state.busy {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next job; the thread that gets none ends.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        let job = state.queue.pop_front();
        if job.is_none() {
            state.busy = false;
            self.idle.notify_all();
        }
        job
    }
}

impl Grid {
    /// Counts how long it has run without the vectors that were put off, and has them made when it is time.
    pub(super) fn count_time(&self) {
        let Some(off) = self.put_off.as_ref().filter(|off| !off.is_settled()) else { return };
        let now = self.began.elapsed().as_nanos() as u64;
        let new = now.saturating_sub(self.counted.fetch_max(now, Ordering::Relaxed));
        if off.is_due(Duration::from_nanos(new)) {
            self.compiler.make_beside(&self.kernel, off.best, self.gate.clone());
        }
    }

    /// Whether the blocks that have not been started are to be a grid of their own, which has the vectors.
    pub(super) fn hands_over(&self, s: &GridState) -> bool {
        // Blocks that are resident together may wait for each other.
        let apart = !self.fibers() || s.next >= self.max_resident;
        self.workspace == 0 && apart && self.put_off.as_ref().is_some_and(|off| off.is_made())
    }

    /// The grid of the blocks that this one has handed over, when it is over.
    pub(super) fn successor(&self) -> Option<Grid> {
        let s = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if s.next == self.blocks || s.fault.is_some() {
            return None;
        }
        let made = self.put_off.as_ref().and_then(|off| self.kernel.made(off.best));
        let better = made.and_then(|code| Some((native_stack(&self.kernel, &code).ok()?, code)));
        let (stack, code) = better.unwrap_or_else(|| (self.stack, self.code.clone()));
        let state = GridState { next: s.next, total: self.blocks, ..GridState::default() };
        Some(Grid {
            kernel: self.kernel.clone(),
            code,
            put_off: None,
            began: self.began,
            counted: AtomicU64::new(0),
            compiler: self.compiler.clone(),
            params: self.params.clone(),
            memory: self.memory.clone(),
            bindings: self.bindings.clone(),
            view: self.view.clone(),
            realm: self.realm.clone(),
            stop: AtomicU32::new(0),
            gate: self.gate.clone(),
            state: Mutex::new(state),
            finished: Condvar::new(),
            stack,
            ..*self
        })
    }
}

impl Compiler {
    /// Has the vectors of a kernel made by a thread beside.
    fn make_beside(self: &Arc<Self>, kernel: &Arc<Kernel>, best: Variant, gate: Option<Arc<dyn Gate>>) {
        let mut state = self.background.lock();
        state.queue.push_back(Job { kernel: Arc::downgrade(kernel), recipe: kernel.recipe(best) });
        if std::mem::replace(&mut state.busy, true) {
            return;
        }
        let compiler = self.clone();
        let body = move || {
            let _quiet = Quiet::new();
            if let Some(gate) = gate {
                gate.settle();
            }
            while let Some(job) = compiler.background.next() {
                compiler.promote(&job);
            }
        };
        let thread = std::thread::Builder::new().name("softcuda-compile".to_string()).stack_size(STACK);
        // The thread ends by itself when it has nothing to do. Without one the kernel stays as it is.
        if thread.spawn(body).is_err() {
            state.queue.clear();
            state.busy = false;
        }
    }

    /// Makes the vectors of a kernel, and its version for single lanes, for which no launch is to wait either.
    fn promote(&self, job: &Job) {
        if job.kernel.strong_count() == 0 {
            return;
        }
        // What fails here fails without harm: the kernel stays as it is.
        let Ok(group) = self.object(&job.recipe, None) else { return };
        let Ok(lanes) = self.object(&job.recipe, Some(&group.places)) else { return };
        if let Some(kernel) = job.kernel.upgrade() {
            kernel.install(&group, &lanes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Mode;

    fn put_off(until: u64) -> PutOff {
        let best = Variant { mode: Mode::WarpLoop, width: 32, rows: true };
        PutOff::until(best, until)
    }

    #[test]
    fn is_due_once_when_the_time_has_come() {
        let off = put_off(300);
        let steps = [100, 199, 1, 500].map(|t| off.is_due(Duration::from_nanos(t)));
        assert_eq!(steps, [false, false, true, false]);
    }

    #[test]
    fn what_is_too_long_is_never_due() {
        assert!(!put_off(u64::MAX).is_due(Duration::from_secs(1 << 40)));
    }

    #[test]
    fn short_kernels_have_vectors_at_once_and_the_longest_never() {
        let usual = Policy { at_once: 200, at_most: 4000, cost: Duration::from_micros(500) };
        assert_eq!(usual.puts_off(200), None);
        assert_eq!(usual.puts_off(1000), Some(Duration::from_millis(500)));
        assert_eq!(usual.puts_off(4001), Some(Duration::MAX));
    }
}

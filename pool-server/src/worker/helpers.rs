//! Threads for calls that may take long, so that the ring's thread never waits. A client's thread waits for its call,
//! so there are never more of them under way than reply slots, and each gets a thread of its own: calls that wait for
//! each other cannot starve.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use gpupool_protocol::wire::layout::SLOTS;

use super::args::Awaited;
use super::context::{Call, Cx};
use super::dispatch::{self, Task};
use super::session::{Broken, Session};

/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(10);
/// Stacks are only touched as far as they are used; a driver that compiles on the calling thread needs a deep one.
const STACK_BYTES: usize = 8 << 20;

/// The threads.
#[derive(Debug)]
pub struct Helpers {
    sender: Sender<Box<Task>>,
    receiver: Receiver<Box<Task>>,
    count: Mutex<Count>,
    /// Tasks that are not finished and that other streams may have to wait for.
    wide: AtomicUsize,
}

#[derive(Debug, Default)]
struct Count {
    /// Tasks that are not finished.
    tasks: usize,
    /// Threads that wait, less the tasks that no thread has taken yet.
    idle: isize,
    threads: usize,
}

impl Default for Helpers {
    fn default() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver, count: Mutex::default(), wide: AtomicUsize::new(0) }
    }
}

impl Helpers {
    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a task is under way that work in any stream may have to wait for: one that puts work into the legacy
    /// stream, or that the driver lets wait for a whole context. Only the ring's thread makes it true.
    pub fn any_wide(&self) -> bool {
        self.wide.load(Ordering::Acquire) > 0
    }

    /// Has a task done by another thread.
    ///
    /// # Errors
    /// More calls wait than there are reply slots, or not a single thread can be had.
    pub fn submit(&self, session: &Arc<Session>, task: Box<Task>) -> Result<(), Broken> {
        let mut count = self.lock();
        if count.tasks >= SLOTS as usize {
            return Err(Broken::at(&task.call, "more calls wait for an answer than there are reply slots"));
        }
        if count.idle <= 0 {
            let (session, call) = (session.clone(), task.call);
            let thread = std::thread::Builder::new().name("helper".into()).stack_size(STACK_BYTES);
            match thread.spawn(move || serve(&session, call)) {
                Ok(_) => {
                    count.threads += 1;
                    count.idle += 1;
                }
                Err(error) if count.threads == 0 => {
                    return Err(Broken::System(format!("no thread can be had: {error}")));
                }
                // It waits until one of the threads that there are comes to it.
                Err(error) => tracing::warn!("no further thread can be had: {error}"),
            }
        }
        count.idle -= 1;
        count.tasks += 1;
        drop(count);
        if task.awaited.is_some_and(Awaited::is_wide) {
            self.wide.fetch_add(1, Ordering::AcqRel);
        }
        // The receiver is in `self`, so the channel is open.
        let _ = self.sender.send(task);
        Ok(())
    }
}

fn serve(session: &Arc<Session>, first: Call) {
    let helpers = &session.helpers;
    let mut cx = Cx::new(session.clone(), first);
    loop {
        match helpers.receiver.recv_timeout(LINGER) {
            Ok(task) => {
                let (call, wide) = (task.call, task.awaited.is_some_and(Awaited::is_wide));
                let done = catch_unwind(AssertUnwindSafe(|| dispatch::run_later(&mut cx, *task)));
                // Its client would wait for ever.
                if let Err(broken) =
                    done.unwrap_or_else(|_| Err(Broken::at(&call, "it failed inside the worker")))
                {
                    session.end(broken);
                }
                if wide {
                    helpers.wide.fetch_sub(1, Ordering::AcqRel);
                }
                let mut count = helpers.lock();
                count.tasks -= 1;
                count.idle += 1;
            }
            Err(_) => {
                let mut count = helpers.lock();
                if count.idle > 0 {
                    count.idle -= 1;
                    count.threads -= 1;
                    return;
                }
            }
        }
    }
}

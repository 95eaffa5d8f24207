//! The thread that runs host functions. It starts with the first one and sleeps while none is due.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use gpupool_protocol::api::numbers;
use gpupool_protocol::wire::CallHead;
use gpupool_protocol::wire::codec::Wire;

use crate::calls::StreamFunction;
use crate::code::{Answer, OUT_OF_MEMORY};
use crate::host::{self, HostFunction};
use crate::log::say;
use crate::session::{Session, inside_callback};
use crate::state::objects::lock;
use crate::thread;
use gpupool_protocol::wire::threads::spawn_quiet;

/// A host function that waits for its turn.
pub enum Job {
    /// Of cuLaunchHostFunc.
    Host {
        /// The function.
        function: HostFunction,
        /// Its argument.
        data: u64,
    },
    /// Of cuStreamAddCallback.
    Stream {
        /// The function.
        function: StreamFunction,
        /// The stream, as the program named it.
        stream: u64,
        /// Its last argument.
        data: u64,
    },
}

/// All host functions under way.
#[derive(Default)]
pub struct Callbacks {
    jobs: Mutex<HashMap<u64, Job>>,
    last: AtomicU64,
    /// Registered and not yet returned from.
    under_way: AtomicU64,
    started: Mutex<bool>,
}

impl Callbacks {
    /// Keeps a job; the id names it to the worker.
    pub fn register(&self, session: &'static Session, job: Job) -> Answer<u64> {
        let mut started = lock(&self.started);
        if !*started {
            spawn_quiet("gpupool-host", move || serve(session)).map_err(|_| OUT_OF_MEMORY)?;
            *started = true;
        }
        drop(started);
        let id = self.last.fetch_add(1, Relaxed) + 1;
        self.under_way.fetch_add(1, AcqRel);
        lock(&self.jobs).insert(id, job);
        Ok(id)
    }

    /// The job will not come.
    pub fn unregister(&self, id: u64) {
        if lock(&self.jobs).remove(&id).is_some() {
            self.returned();
        }
    }

    /// Whether some host function has not returned yet. Where it says no, what they have written is seen.
    pub fn are_under_way(&self) -> bool {
        self.under_way.load(Acquire) != 0
    }

    fn returned(&self) {
        self.under_way.fetch_sub(1, AcqRel);
    }

    /// The session is over: nothing will come.
    pub fn give_up(&self) {
        lock(&self.jobs).clear();
    }
}

fn serve(session: &'static Session) {
    loop {
        let id = match session.link.wait_callback() {
            Ok(id) => id,
            Err(error) => {
                session.lost(&error);
                return;
            }
        };
        // A worker that asks for what does not exist still gets its answer, or its stream would stand for ever.
        // The lock must be free while the function runs, for those who register others and for the session's end.
        let job = lock(&session.callbacks.jobs).remove(&id);
        match job {
            Some(job) => {
                // What stands before it in its stream is done.
                session.waits.over();
                inside_callback(|| run(job));
                session.callbacks.returned();
            }
            None => say!(Warn, "the worker asks for host function {id}, which does not exist"),
        }
        let head = CallHead::new(numbers::callback_done, thread::lane(), 0);
        let posted = session.link.post(head, 8, |to| id.put(to)).and_then(|_| session.link.flush());
        if let Err(error) = posted {
            session.lost(&error);
            return;
        }
    }
}

fn run(job: Job) {
    match job {
        Job::Host { function, data } => host::run(function, data),
        Job::Stream { function, stream, data } => host::run_in_stream(function, stream, data),
    }
}

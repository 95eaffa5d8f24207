//! One session: its state, and the loop of the ring's thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gpupool_protocol::api;
use gpupool_protocol::control::DataSocket;
use gpupool_protocol::wire::{Head, LinkError, Receiver, Replier, WorkerLink};

use super::arena::HostArena;
use super::args::Awaited;
use super::callbacks::Callbacks;
use super::code::Code;
use super::context::{Call, Cx};
use super::dispatch;
use super::driver::Driver;
use super::errors::PostErrors;
use super::heap::Heaps;
use super::helpers::Helpers;
use super::landing::Landing;
use super::lanes::Lanes;
use super::objects::{ContextState, Objects};
use super::others::Others;
use super::output::Output;
use super::parcels::Parcels;
use super::primary::Primaries;
use super::staging::Staging;
use super::streams::Streams;
use super::watcher::Watcher;
use super::{Data, WorkerSetup};

/// How long the ring's thread looks whether a call has nothing to wait for, before another thread waits for it. A
/// hand-over costs about as much.
const PATIENCE: Duration = Duration::from_micros(20);

/// Everything that the threads of a session share.
pub struct Session {
    /// The driver.
    pub driver: Driver,
    /// Answers, board, chunks.
    pub link: Arc<Replier>,
    /// The driver's numbers of the session's devices, in the order in which the client counts them.
    pub devices: Vec<i32>,
    /// The devices' primary contexts.
    pub primaries: Primaries,
    /// Raised whenever a context ends, so that no thread takes an ended one for current.
    pub context_changes: AtomicU64,
    /// Raised whenever a handle ends, so that no thread takes what it has looked up before for something that lives.
    pub removals: AtomicU64,
    /// What posts have failed with.
    pub post_errors: PostErrors,
    /// Large inputs and answers.
    pub parcels: Parcels,
    /// What kernels print.
    pub output: Output,
    /// Host functions.
    pub callbacks: Arc<Callbacks>,
    /// The completion board's watches.
    pub watcher: Watcher,
    /// Device memory that the client divides up.
    pub heaps: Heaps,
    /// The other sessions, where a daemon knows of them.
    pub others: OnceLock<Others>,
    /// Pinned memory that the client sees as well.
    pub arena: HostArena,
    /// Chunks that streams hold.
    pub staging: Staging,
    /// Copies to memory that only the client has.
    pub landing: Landing,
    /// Which streams there are.
    pub streams: Streams,
    /// What is kept for each client thread.
    pub lanes: Lanes,
    /// Threads for calls that may take long.
    pub helpers: Helpers,
    objects: Mutex<Objects>,
    broken: Mutex<Option<Broken>>,
}

/// Why a session ends before its client leaves.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// A record that no honest client sends.
    #[error("call {number} ({name}) at {position}: {what}")]
    Record {
        /// The call's number.
        number: u16,
        /// Its name.
        name: &'static str,
        /// The record's position.
        position: u64,
        /// What is wrong.
        what: String,
    },
    /// The link does not work.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The system gives no more.
    #[error("{0}")]
    System(String),
}

impl Broken {
    /// The record of `call` broke it.
    pub fn at(call: &Call, what: &str) -> Self {
        let name = api::call(call.number()).map_or("unknown", |declared| declared.name);
        Self::Record { number: call.number(), name, position: call.position, what: what.into() }
    }
}

impl Session {
    /// A session over `link`.
    ///
    /// # Errors
    /// No memory for the output.
    pub fn new(driver: Driver, link: Arc<Replier>, devices: Vec<i32>) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            driver,
            link,
            devices,
            primaries: Primaries::default(),
            context_changes: AtomicU64::new(0),
            removals: AtomicU64::new(0),
            post_errors: PostErrors::default(),
            parcels: Parcels::default(),
            output: Output::new()?,
            callbacks: Arc::default(),
            watcher: Watcher::default(),
            heaps: Heaps::default(),
            others: OnceLock::new(),
            arena: HostArena::default(),
            staging: Staging::default(),
            landing: Landing::default(),
            streams: Streams::default(),
            lanes: Lanes::default(),
            helpers: Helpers::default(),
            objects: Mutex::default(),
            broken: Mutex::default(),
        }))
    }

    /// The tables of objects.
    #[inline]
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything in a context is about to end: nothing of it may be used any more.
    pub fn end_context(&self, state: &ContextState) {
        let home = state.native.load(Ordering::Acquire);
        self.watcher.forget_context(self, home);
        self.streams.forget(home);
        self.landing.forget_context(home);
        state.end();
        self.context_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the driver says that there is nothing to wait for.
    pub fn settled(&self, awaited: Awaited) -> bool {
        let hand = &self.driver.hand;
        // A driver's answer for a legacy stream may leave out the streams that it waits for; one of them may wait for a
        // host function, which only goes on while the ring's thread does.
        if awaited.is_wide() && self.callbacks.any() {
            return false;
        }
        // A helper may give the legacy stream a copy between the driver's answer and the call: work that the call puts
        // into its own stream would wait behind that copy.
        if !matches!(awaited, Awaited::Event(_)) && self.helpers.any_wide() {
            return false;
        }
        match awaited {
            Awaited::Stream(stream) => hand.cuStreamQuery(stream) != Code::NOT_READY,
            Awaited::Event(event) => hand.cuEventQuery(event) != Code::NOT_READY,
            Awaited::Context(home) => self.streams.all(home, |s| hand.cuStreamQuery(s) != Code::NOT_READY),
        }
    }

    /// Ends the session, from any thread. The first reason stays.
    pub fn end(&self, broken: Broken) {
        if let Broken::Record { number, position, .. } = &broken {
            // The client may be gone already.
            let _ = self.link.set_status(Code::UNKNOWN.0 as u32, u32::from(*number), *position);
        }
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(broken);
        self.callbacks.end();
        self.link.break_with(LinkError::GivenUp("the session has ended".into()));
    }

    fn reason(&self) -> Option<Broken> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs a session until its client is gone.
///
/// # Errors
/// The session could not start, or was broken: by its client, or by the system.
pub fn run(setup: WorkerSetup<Driver>, data: Data) -> anyhow::Result<()> {
    let WorkerSetup { driver, session: spec, transport, others } = setup;
    if driver.hand.cuInit(0) != Code::SUCCESS {
        bail!("the driver does not start");
    }
    let (mut receiver, link) = match data.first {
        DataSocket::Unix(socket) => WorkerLink::shm(socket),
        DataSocket::Tcp(socket) => {
            let bulk = data.more.into_iter().filter_map(DataSocket::into_tcp).collect();
            WorkerLink::tcp_with(socket, bulk)
        }
    }
    .with_context(|| format!("the data path over {transport} does not come about"))?;
    let devices =
        spec.devices.iter().map(|ordinal| device(&driver, *ordinal)).collect::<anyhow::Result<_>>()?;
    let session = Session::new(driver, link, devices).context("no memory for what kernels print")?;
    let _ = session.others.set(others);
    session.output.capture().context("standard output cannot be captured")?;
    serve(&session, &mut receiver)
}

fn device(driver: &Driver, ordinal: u32) -> anyhow::Result<i32> {
    let mut device = 0;
    let code = driver.hand.cuDeviceGet(&mut device, i32::try_from(ordinal)?);
    if code == Code::SUCCESS {
        Ok(device)
    } else {
        bail!("device {ordinal} of the driver answers CUDA error {}", code.0)
    }
}

/// The loop of the ring's thread.
///
/// # Errors
/// Why the session was broken. A client that leaves is none.
pub fn serve(session: &Arc<Session>, receiver: &mut Receiver) -> anyhow::Result<()> {
    let nothing =
        Head { length: 0, call: 0, chunk_up: None, chunk_down: None, lane: 0, slot: None, context: 0 };
    let mut cx = Cx::new(session.clone(), Call::new(&nothing, 0));
    let broken = loop {
        if let Err(broken) = step(session, receiver, &mut cx) {
            break broken;
        }
    };
    let gone = matches!(broken, Broken::Link(LinkError::Closed));
    if !gone {
        session.end(broken);
    }
    session.callbacks.end();
    match session.reason() {
        Some(Broken::Link(LinkError::Closed)) | None => Ok(()),
        Some(broken) => Err(broken.into()),
    }
}

/// Takes one record and carries it out, or has it carried out.
fn step(session: &Arc<Session>, receiver: &mut Receiver, cx: &mut Cx) -> Result<(), Broken> {
    let record = receiver.next()?;
    let Some(task) = dispatch::dispatch(cx, record)? else { return Ok(()) };
    // Nothing to wait for, or not for long: a hand-over would take longer.
    if let Some(awaited) = task.awaited
        && settles(session, receiver, awaited)
    {
        return dispatch::run_later(cx, *task);
    }
    session.helpers.submit(session, task)
}

/// Whether there is nothing to wait for any more within a moment in which the ring is empty.
fn settles(session: &Session, receiver: &Receiver, awaited: Awaited) -> bool {
    let until = Instant::now() + PATIENCE;
    while receiver.idle_hint() && Instant::now() < until {
        std::hint::spin_loop();
        if session.settled(awaited) {
            return true;
        }
    }
    false
}

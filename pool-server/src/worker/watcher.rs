//! Raises words of the completion board, and gives chunks back, when the work that they stand for is done. One thread asks
//! the driver about all watched events in turn; it sleeps while nothing is watched. It holds no lock while it asks: the
//! ring's thread never waits for a driver's answer here.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpupool_protocol::wire::LinkError;
use gpupool_protocol::wire::board::FAILED;
use gpupool_protocol::wire::codec::BadRecord;
use gpupool_protocol::wire::layout::BOARD_WORDS;

use super::code::{Code, Fail};
use super::session::{Broken, Session};

/// Questions in a row, while a new watch has to wait.
const BATCH: usize = 128;
/// Pauses between two rounds of questions: short at first, doubled up to the longest.
const SHORTEST: Duration = Duration::from_micros(5);
const LONGEST: Duration = Duration::from_micros(200);
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// What is done when watched work is.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// A word of the completion board is raised.
    Word(Word),
    /// An up-chunk that [`super::staging`] holds goes back to the client.
    Chunk(u32),
}

/// A word of the completion board and what it is to be raised to.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    word: u32,
    value: u64,
}

impl Goal {
    /// A word that an honest client names.
    ///
    /// # Errors
    /// [`BadRecord`]: there is no such word, or the value is not one.
    pub fn word(word: u32, value: u64) -> Result<Self, Fail> {
        let fine = word < BOARD_WORDS && value & FAILED == 0;
        if fine { Ok(Self::Word(Word { word, value })) } else { Err(BadRecord::OutOfRange.into()) }
    }

    /// What there is one watch of.
    fn key(&self) -> u32 {
        match *self {
            Goal::Word(Word { word, .. }) => word,
            Goal::Chunk(index) => BOARD_WORDS + index,
        }
    }

    /// Does it, now that the driver has answered `code`, which is not NOT_READY.
    ///
    /// # Errors
    /// The link is broken.
    pub fn reach(&self, session: &Session, code: Code) -> Result<(), LinkError> {
        match *self {
            Goal::Word(Word { word, value }) => {
                let failed = FAILED | u64::from(code.0 as u32);
                session.link.board_set(word, if code == Code::SUCCESS { value } else { failed })
            }
            Goal::Chunk(index) => {
                session.staging.let_go();
                session.link.release_chunk_up(index)
            }
        }
    }
}

#[derive(Debug)]
struct Watch {
    goal: Goal,
    event: u64,
    /// The driver's context that the event belongs to.
    context: u64,
    /// The event is ours, to be used again.
    ours: bool,
    /// Tells it from later watches of the same word.
    serial: u64,
}

/// The question that the watcher's thread has asked and that is not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Question {
    event: u64,
    context: u64,
    /// The client has destroyed the event meanwhile; the driver's goes when it has answered.
    orphan: bool,
}

/// The watches of a session.
#[derive(Debug, Default)]
pub struct Watcher {
    state: Mutex<State>,
    bell: Condvar,
    /// Rung when a question is answered.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By [`Goal::key`], so that there are never more than words and chunks.
    watches: BTreeMap<u32, Watch>,
    /// Our own events that nothing is recorded in, by context.
    free: HashMap<u64, Vec<u64>>,
    asked: Option<Question>,
    /// The context that is current to the watcher's thread, or 0.
    current: u64,
    running: bool,
    serial: u64,
}

impl State {
    /// Adds a watch. A word's earlier watch goes: the client waits for the later value only, however often it asked
    /// while its stream stood.
    ///
    /// # Errors
    /// [`BadRecord`]: the client named a chunk that it has not got back.
    fn put(&mut self, mut watch: Watch) -> Result<(), Fail> {
        self.serial += 1;
        watch.serial = self.serial;
        match self.watches.entry(watch.goal.key()) {
            Entry::Vacant(place) => {
                place.insert(watch);
            }
            Entry::Occupied(_) if matches!(watch.goal, Goal::Chunk(_)) => {
                return Err(BadRecord::OutOfRange.into());
            }
            Entry::Occupied(mut place) => {
                let earlier = place.insert(watch);
                if earlier.ours {
                    self.free.entry(earlier.context).or_default().push(earlier.event);
                }
            }
        }
        Ok(())
    }
}

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches for the end of what is in `stream` now. `context` is the driver's and is current.
    ///
    /// # Errors
    /// The driver gives no event; the chunk is watched already.
    pub fn stream(&self, session: &Arc<Session>, context: u64, stream: u64, goal: Goal) -> Result<(), Fail> {
        let hand = &session.driver.hand;
        match hand.cuStreamQuery(stream) {
            Code::NOT_READY => {}
            code => return Ok(goal.reach(session, code)?),
        }
        let event = self.lock().free.get_mut(&context).and_then(Vec::pop);
        let event = match event {
            Some(event) => event,
            None => {
                let mut event = 0;
                hand.cuEventCreate(&mut event, DISABLE_TIMING).ok()?;
                event
            }
        };
        if let Err(fail) = hand.cuEventRecord(event, stream).ok() {
            self.lock().free.entry(context).or_default().push(event);
            return Err(fail);
        }
        self.add(session, Watch { goal, event, context, ours: true, serial: 0 })
    }

    /// Watches for the end of what `event` was last recorded behind.
    ///
    /// # Errors
    /// The chunk is watched already.
    pub fn event(&self, session: &Arc<Session>, context: u64, event: u64, goal: Goal) -> Result<(), Fail> {
        match session.driver.hand.cuEventQuery(event) {
            Code::NOT_READY => self.add(session, Watch { goal, event, context, ours: false, serial: 0 }),
            code => Ok(goal.reach(session, code)?),
        }
    }

    fn add(&self, session: &Arc<Session>, watch: Watch) -> Result<(), Fail> {
        let mut state = self.lock();
        if !state.running {
            let session = session.clone();
            let thread = std::thread::Builder::new().name("watcher".into());
            let serve = move || {
                if catch_unwind(AssertUnwindSafe(|| session.watcher.serve(&session))).is_err() {
                    session.end(Broken::System("the completion board's thread failed".into()));
                }
            };
            thread.spawn(serve).or(Err(Code::OUT_OF_MEMORY))?;
            state.running = true;
        }
        state.put(watch)?;
        // Among many, one more waits for its turn: a round for each would take the longer the more there are.
        let few = state.watches.len() <= BATCH;
        drop(state);
        if few {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// The client's event is about to be destroyed. False if the driver is being asked about it right now: then the
    /// watcher destroys it after the answer.
    pub fn forget_event(&self, event: u64) -> bool {
        let mut state = self.lock();
        // Nobody asks for it any more, so its words are not raised: they serve the next objects in their places.
        state.watches.retain(|_, watch| watch.event != event || watch.ours);
        match &mut state.asked {
            Some(question) if question.event == event => {
                question.orphan = true;
                false
            }
            _ => true,
        }
    }

    /// The driver's context is about to end, with all events in it. Waits for the answer to a question about one of them,
    /// which a driver gives at once.
    pub fn forget_context(&self, session: &Session, context: u64) {
        let mut state = self.lock();
        state.watches.retain(|_, watch| {
            let goes = watch.context == context;
            if goes {
                // A broken link is found by the ring's thread.
                let _ = watch.goal.reach(session, Code::CONTEXT_IS_DESTROYED);
            }
            !goes
        });
        while state.asked.is_some_and(|question| question.context == context) {
            state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.free.remove(&context);
        // Another may get the same address.
        state.current = 0;
    }

    fn serve(&self, session: &Arc<Session>) {
        let mut pause = SHORTEST;
        let mut next = 0;
        let mut state = self.lock();
        loop {
            if state.watches.is_empty() {
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                pause = SHORTEST;
                continue;
            }
            let (held, done) = match self.round(session, state, &mut next) {
                Ok(round) => round,
                Err(broken) => return session.end(broken),
            };
            state = held;
            if done > 0 {
                pause = SHORTEST;
            }
            if next != 0 {
                continue;
            }
            let (held, timeout) =
                self.bell.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
            state = held;
            pause = if timeout.timed_out() { (pause * 2).min(LONGEST) } else { SHORTEST };
        }
    }

    /// Asks about watched events from key `next` on, as many as a batch has; says how many are done. `next` becomes the key
    /// to go on with, or 0 when the round is complete.
    fn round<'w>(
        &'w self,
        session: &Session,
        mut state: MutexGuard<'w, State>,
        next: &mut u32,
    ) -> Result<(MutexGuard<'w, State>, usize), Broken> {
        let mut done = 0;
        for _ in 0..BATCH {
            let Some((&key, watch)) = state.watches.range(*next..).next() else { break };
            let (event, context, serial) = (watch.event, watch.context, watch.serial);
            *next = key + 1;
            let current = state.current;
            state.asked = Some(Question { event, context, orphan: false });
            drop(state);
            let (code, entered) = ask(session, event, context, current);
            state = self.lock();
            if entered {
                state.current = context;
            }
            if state.asked.take().is_some_and(|question| question.orphan) {
                // Its failure is the context's, and is told elsewhere.
                let _ = session.driver.hand.cuEventDestroy_v2(event);
            }
            self.answered.notify_all();
            if code == Code::NOT_READY || state.watches.get(&key).is_none_or(|watch| watch.serial != serial) {
                continue;
            }
            if let Some(watch) = state.watches.remove(&key) {
                watch.goal.reach(session, code)?;
                if watch.ours {
                    state.free.entry(watch.context).or_default().push(watch.event);
                }
                done += 1;
            }
        }
        *next = state.watches.range(*next..).next().map_or(0, |(key, _)| *key);
        Ok((state, done))
    }
}

/// Asks the driver about an event; also whether the thread's context has changed for that.
fn ask(session: &Session, event: u64, context: u64, current: u64) -> (Code, bool) {
    let hand = &session.driver.hand;
    let entered = current != context && hand.cuCtxSetCurrent(context) == Code::SUCCESS;
    (hand.cuEventQuery(event), entered)
}

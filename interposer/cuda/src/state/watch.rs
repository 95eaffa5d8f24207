//! How far a stream or an event has come, as far as the client knows.
//!
//! Work is counted where it is posted. A synchronise, or a query that says yes, moves what is known to be done. A query
//! of new work asks the worker once; while that says "not ready", the completion board is watched, so that polling
//! costs plain loads.
//!
//! A word may be raised a little later than the worker answers a wait for the same work. A program that has waited must not be
//! told that the work is under way: the first query after any wait asks the worker, whatever the word says.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use gpupool_protocol::wire::board::{Reading, Watches};
use gpupool_protocol::wire::layout::BOARD_WORDS;

use super::objects::lock;
use crate::code::{Answer, NOT_READY};

/// Waits for work that are over: how many.
#[derive(Debug, Default)]
pub struct Waits(AtomicU64);

impl Waits {
    /// One is over. Said before its end is known to the program or to another thread.
    #[inline]
    pub fn over(&self) {
        self.0.fetch_add(1, AcqRel);
    }

    /// How many are over.
    pub fn count(&self) -> u64 {
        self.0.load(Acquire)
    }
}

/// What was posted to an object, and what of it is known to be done.
#[derive(Debug, Default)]
pub struct Progress {
    posted: AtomicU64,
    done: AtomicU64,
    /// What a synchronise has waited for, hence what kernels have printed up to there is out.
    synchronised: AtomicU64,
    watch: Mutex<Watch>,
}

#[derive(Debug, Default)]
struct Watch {
    /// The board word of this object plus 1; 0: none yet.
    word: u32,
    /// The watches of that word.
    watches: Watches,
    /// What will be done when the newest of them is.
    covers: u64,
    /// The worker has said that it is under way, or it was posted, when so many waits were over at least.
    waits: u64,
}

impl Watch {
    /// What its word says; there must be one.
    fn read(&self, board: &impl Board) -> Answer<Reading> {
        Ok(self.watches.read(board.read(self.word - 1)?))
    }

    /// Has its word raised when everything up to `posted` is done, which was under way when `waits` were over.
    fn begin(&mut self, board: &impl Board, posted: u64, waits: u64) -> Answer {
        let value = self.watches.begin();
        board.watch(self.word - 1, value)?;
        (self.covers, self.waits) = (posted, waits);
        Ok(())
    }
}

/// What a query needs of the session.
pub trait Board {
    /// Asks the worker for the driver's own answer.
    fn ask(&self) -> Answer;
    /// Has `word` raised to `value` when all that was posted is done.
    fn watch(&self, word: u32, value: u64) -> Answer;
    /// Reads a word.
    fn read(&self, word: u32) -> Answer<u64>;
    /// How many waits of the program are over.
    fn waits(&self) -> u64;
}

impl Progress {
    /// Starts anew, for a new object in the same place. Its board word, if it has one, stays with the place. The counts go on:
    /// a wait of another thread (for the whole context, say) that began before may end after this, and what it tells then
    /// is of the object that was here, not of this one.
    pub fn reset(&self) {
        self.synchronised(self.posted());
    }

    /// Something is being posted.
    #[inline]
    pub fn post(&self) {
        self.posted.fetch_add(1, AcqRel);
    }

    /// What was posted so far. Taken before a synchronise, it is what [`Progress::synchronised`] is told
    /// afterwards.
    pub fn posted(&self) -> u64 {
        self.posted.load(Acquire)
    }

    /// Everything up to `posted` is done.
    fn is_done(&self, posted: u64) {
        raise(&self.done, posted);
    }

    /// A synchronise has waited for everything up to `posted`.
    pub fn synchronised(&self, posted: u64) {
        self.is_done(posted);
        raise(&self.synchronised, posted);
    }

    /// Whether a synchronise has waited for everything that was posted. That a query said yes is not enough: kernels'
    /// text comes out at a synchronise.
    pub fn is_synchronised(&self) -> bool {
        let posted = self.posted();
        self.synchronised.load(Acquire) >= posted
    }

    /// Whether everything is known to be done.
    pub fn is_known_done(&self) -> bool {
        let posted = self.posted();
        self.done.load(Acquire) >= posted
    }

    /// Success, CUDA_ERROR_NOT_READY, or an error of the work.
    pub fn query(&self, board: &impl Board) -> Answer {
        let posted = self.posted();
        if self.done.load(Acquire) >= posted {
            return Ok(());
        }
        // Before the worker is asked: what it says is no answer to a wait that ends later.
        let waits = board.waits();
        let mut watch = lock(&self.watch);
        if watch.word != 0 && watch.covers >= posted {
            match watch.read(board)? {
                Reading::Waits if watch.waits >= waits => return Err(NOT_READY),
                Reading::Done => {
                    self.is_done(watch.covers);
                    return Ok(());
                }
                Reading::Waits | Reading::Failed => {}
            }
        }
        match board.ask() {
            Ok(()) => {
                self.is_done(posted);
                Ok(())
            }
            Err(NOT_READY) => {
                let reading = if watch.word == 0 { Reading::Failed } else { watch.read(board)? };
                if reading == Reading::Waits && watch.covers >= posted {
                    watch.waits = watch.waits.max(waits);
                    return Err(NOT_READY);
                }
                // A word that carries an error (of an object that was in this place before) carries nothing else any more.
                if reading == Reading::Failed {
                    watch.word = free_word().map_or(0, |word| word + 1);
                }
                // Without a word the next query asks again.
                if watch.word != 0 {
                    watch.begin(board, posted, waits)?;
                }
                Err(NOT_READY)
            }
            other => other,
        }
    }
}

impl Progress {
    /// As [`Progress::query`], where nothing can be watched: asks the worker unless all is known to be done.
    pub fn query_unwatched(&self, board: &impl Board) -> Answer {
        let posted = self.posted();
        if self.done.load(Acquire) < posted {
            board.ask()?;
            self.is_done(posted);
        }
        Ok(())
    }

    /// Something was just posted to an object that the program polls: has it watched at once, so that no query asks the worker.
    /// Does nothing for one that was never found unfinished. `waits` were over before it was posted.
    pub fn watch_polled(&self, board: &impl Board, waits: u64) -> Answer {
        let mut watch = lock(&self.watch);
        if watch.word == 0 {
            return Ok(());
        }
        let posted = self.posted();
        // After an error on the word a query looks for another one.
        if watch.covers >= posted || watch.read(board)? == Reading::Failed {
            return Ok(());
        }
        watch.begin(board, posted, waits)
    }
}

/// Raises a count. Often it is there already, and a look costs less.
fn raise(count: &AtomicU64, to: u64) {
    if count.load(Acquire) < to {
        count.fetch_max(to, AcqRel);
    }
}

/// A board word that no object has.
fn free_word() -> Option<u32> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let word = NEXT.fetch_add(1, Relaxed);
    (word < u64::from(BOARD_WORDS)).then_some(word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpupool_protocol::wire::board::FAILED;
    use std::cell::{Cell, RefCell};

    struct Fake {
        answer: Cell<Answer>,
        board: Cell<u64>,
        asked: Cell<u32>,
        watched: RefCell<Vec<u64>>,
        waits: Waits,
    }

    impl Board for Fake {
        fn ask(&self) -> Answer {
            self.asked.set(self.asked.get() + 1);
            self.answer.get()
        }
        fn watch(&self, _word: u32, value: u64) -> Answer {
            self.watched.borrow_mut().push(value);
            Ok(())
        }
        fn read(&self, _word: u32) -> Answer<u64> {
            Ok(self.board.get())
        }
        fn waits(&self) -> u64 {
            self.waits.count()
        }
    }

    fn fake() -> Fake {
        Fake {
            answer: Cell::new(Err(NOT_READY)),
            board: Cell::new(0),
            asked: Cell::new(0),
            watched: RefCell::default(),
            waits: Waits::default(),
        }
    }

    #[test]
    fn polling_asks_once_and_then_reads_the_board() {
        let (progress, worker) = (Progress::default(), fake());
        assert_eq!(progress.query(&worker), Ok(()), "nothing was posted");
        progress.post();
        for _ in 0..5 {
            assert_eq!(progress.query(&worker), Err(NOT_READY));
        }
        assert_eq!((worker.asked.get(), worker.watched.borrow().len()), (1, 1));
        worker.board.set(1);
        assert_eq!(progress.query(&worker), Ok(()));
        progress.post();
        assert_eq!(progress.query(&worker), Err(NOT_READY), "the old watch says nothing of new work");
        assert_eq!(*worker.watched.borrow(), [1, 2]);
        worker.board.set(2);
        assert_eq!((progress.query(&worker), worker.asked.get()), (Ok(()), 2));
    }

    #[test]
    fn what_is_polled_is_watched_when_it_is_posted_and_never_asked_about_again() {
        let (progress, worker) = (Progress::default(), fake());
        progress.post();
        progress.watch_polled(&worker, worker.waits()).unwrap();
        assert!(worker.watched.borrow().is_empty(), "nobody has polled it yet");
        assert_eq!(progress.query(&worker), Err(NOT_READY));
        for round in 2..5u64 {
            worker.board.set(round - 1);
            progress.post();
            progress.watch_polled(&worker, worker.waits()).unwrap();
            assert_eq!(worker.watched.borrow().last(), Some(&round));
            assert_eq!(progress.query(&worker), Err(NOT_READY));
            worker.board.set(round);
            assert_eq!(progress.query(&worker), Ok(()));
        }
        assert_eq!(worker.asked.get(), 1);
    }

    #[test]
    fn after_a_wait_the_worker_says_whether_the_word_is_late() {
        let (progress, worker) = (Progress::default(), fake());
        progress.post();
        assert_eq!(progress.query(&worker), Err(NOT_READY));
        worker.waits.over();
        for _ in 0..5 {
            assert_eq!(progress.query(&worker), Err(NOT_READY), "it was a wait for something else");
        }
        assert_eq!(
            (worker.asked.get(), worker.watched.borrow().len()),
            (2, 1),
            "asked once more, watched still"
        );
        worker.waits.over();
        worker.answer.set(Ok(()));
        assert_eq!(progress.query(&worker), Ok(()), "the word is late");
        // Posted and watched, and a wait for it is over before it is queried for the first time.
        let before = worker.waits();
        progress.post();
        progress.watch_polled(&worker, before).unwrap();
        worker.waits.over();
        assert_eq!((progress.query(&worker), worker.asked.get()), (Ok(()), 4));
    }

    #[test]
    fn what_cannot_be_watched_is_asked_about_until_it_is_done() {
        let (progress, worker) = (Progress::default(), fake());
        progress.post();
        assert_eq!(progress.query_unwatched(&worker), Err(NOT_READY));
        worker.answer.set(Ok(()));
        for _ in 0..3 {
            assert_eq!(progress.query_unwatched(&worker), Ok(()));
        }
        assert_eq!((worker.asked.get(), worker.watched.borrow().len()), (2, 0));
        progress.post();
        worker.answer.set(Err(NOT_READY));
        assert_eq!(progress.query_unwatched(&worker), Err(NOT_READY));
    }

    #[test]
    fn a_word_with_an_error_is_not_watched_again() {
        let (progress, worker) = (Progress::default(), fake());
        progress.post();
        assert_eq!(progress.query(&worker), Err(NOT_READY));
        worker.board.set(FAILED | 700);
        progress.post();
        progress.watch_polled(&worker, worker.waits()).unwrap();
        assert_eq!(*worker.watched.borrow(), [1], "the error would hide what comes after it");
        worker.answer.set(Ok(()));
        assert_eq!((progress.query(&worker), worker.asked.get()), (Ok(()), 2));
    }

    #[test]
    fn after_an_error_on_the_board_the_driver_says_whose_it_is() {
        let (progress, worker) = (Progress::default(), fake());
        progress.post();
        assert_eq!(progress.query(&worker), Err(NOT_READY));
        // Of the object that was in this place before: it ended while it was watched.
        worker.board.set(FAILED | 400);
        assert_eq!(progress.query(&worker), Err(NOT_READY));
        worker.answer.set(Err(crate::code::Code(700)));
        assert_eq!(progress.query(&worker), Err(crate::code::Code(700)));
    }

    #[test]
    fn a_wait_for_an_object_that_was_in_this_place_says_nothing_of_the_new_one() {
        let (progress, worker) = (Progress::default(), fake());
        (0..5).for_each(|_| progress.post());
        let seen = progress.posted();
        assert_eq!(progress.query(&worker), Err(NOT_READY), "the old one is watched");
        progress.reset();
        assert_eq!(
            (progress.is_synchronised(), progress.query(&worker)),
            (true, Ok(())),
            "nothing was posted"
        );
        progress.post();
        progress.synchronised(seen);
        worker.board.set(1);
        assert!(!progress.is_synchronised());
        assert_eq!(progress.query(&worker), Err(NOT_READY));
        worker.board.set(2);
        assert_eq!(progress.query(&worker), Ok(()));
    }

    #[test]
    fn what_a_synchronise_has_seen_needs_no_question() {
        let (progress, worker) = (Progress::default(), fake());
        progress.post();
        let seen = progress.posted();
        progress.post();
        progress.synchronised(seen);
        assert!(!progress.is_synchronised());
        progress.synchronised(progress.posted());
        assert!(progress.is_synchronised());
        assert_eq!((progress.query(&worker), worker.asked.get()), (Ok(()), 0));
    }
}

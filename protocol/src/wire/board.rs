//! What the words of the completion board say, and how a client tells by its word whether an object's work is done.
//!
//! A word belongs to a *place* of the client's, and stays with it when another stream or event takes the place. Each watch has
//! the word raised to a value that no watch before has had. What a watch of an earlier object says late is then never taken for
//! the news of the newest one, and a word that only rises never takes news back.

use std::sync::atomic::Ordering::Release;

use super::atomics::{Atomics, Word64};

/// Set in a word together with the driver's code: the work has failed, or could not be watched. Higher than every value, so the
/// word carries nothing else any more.
pub const FAILED: u64 = 1 << 63;

/// Raises a word, after all that its new value stands for: who sees the value sees that too. Whether it is news; a value that
/// comes late, behind a higher one, is none.
pub fn raise<A: Atomics>(word: &A::U64, value: u64) -> bool {
    word.fetch_max(value, Release) < value
}

/// What a word says of the newest watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The work is under way.
    Waits,
    /// The work is done.
    Done,
    /// The word carries an error, perhaps of an object that was in this place before: the driver knows.
    Failed,
}

/// The watches of one word, as the client counts them.
#[derive(Debug, Default)]
pub struct Watches {
    newest: u64,
}

impl Watches {
    /// The value for a new watch.
    pub fn begin(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// What the word, which was loaded with Acquire, says of the newest watch.
    pub fn read(&self, word: u64) -> Reading {
        match word {
            failed if failed & FAILED != 0 => Reading::Failed,
            early if early < self.newest => Reading::Waits,
            _ => Reading::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::atomics::Model;
    use crate::wire::sleep::tests::Line;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::sync::atomic::Ordering::{Acquire, Relaxed};

    fn model(preemptions: usize) -> loom::model::Builder {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model
    }

    /// A word, and the memory that the work behind each of its values has written.
    struct Word {
        shown: AtomicU64,
        memory: AtomicU64,
    }

    impl Word {
        fn new() -> Arc<Self> {
            Arc::new(Self { shown: AtomicU64::new(0), memory: AtomicU64::new(0) })
        }

        /// The work behind a value is done.
        fn done(&self, value: u64) {
            self.memory.store(value, Relaxed);
            raise::<Model>(&self.shown, value);
        }
    }

    #[test]
    fn who_sees_a_value_sees_the_work_behind_it() {
        model(3).check(|| {
            let word = Word::new();
            let worker = {
                let word = word.clone();
                loom::thread::spawn(move || word.done(1))
            };
            let mut watches = Watches::default();
            watches.begin();
            if watches.read(word.shown.load(Acquire)) == Reading::Done {
                assert_eq!(word.memory.load(Relaxed), 1, "done, and its bytes are not there");
            }
            worker.join().unwrap();
            assert_eq!(watches.read(word.shown.load(Acquire)), Reading::Done);
        });
    }

    /// The watch of an object that has gone is answered by one thread of the worker while another answers that of the object
    /// which is now in its place: in either order, and whether the old one was done or could not be asked about any more.
    #[test]
    fn a_late_answer_for_the_object_before_is_none_for_the_new_one() {
        for old in [1, FAILED | 400] {
            model(3).check(move || {
                let word = Word::new();
                let mut watches = Watches::default();
                assert_eq!(watches.begin(), 1);
                let late = {
                    let word = word.clone();
                    loom::thread::spawn(move || raise::<Model>(&word.shown, old))
                };
                // The old object goes, and a new one takes its place.
                let new = watches.begin();
                let worker = {
                    let word = word.clone();
                    loom::thread::spawn(move || word.done(new))
                };
                if watches.read(word.shown.load(Acquire)) == Reading::Done {
                    assert_eq!(
                        word.memory.load(Relaxed),
                        new,
                        "the old object's answer was taken for the new one's"
                    );
                }
                late.join().unwrap();
                worker.join().unwrap();
                // Never `Waits`, or a program that polls would do so for ever.
                let last = watches.read(word.shown.load(Acquire));
                assert_eq!(last, if old == 1 { Reading::Done } else { Reading::Failed });
            });
        }
    }

    #[test]
    fn sleepers_of_two_words_on_one_bell_both_wake_with_their_news() {
        model(2).check(|| {
            let (line, words) = (Line::new(), [Word::new(), Word::new()]);
            let sleepers: Vec<_> = words
                .iter()
                .map(|word| {
                    let (line, word) = (line.clone(), word.clone());
                    loom::thread::spawn(move || {
                        let mut watches = Watches::default();
                        watches.begin();
                        line.sleep_until(&|| watches.read(word.shown.load(Acquire)) != Reading::Waits);
                        assert_eq!(word.memory.load(Relaxed), 1);
                    })
                })
                .collect();
            for word in &words {
                word.done(1);
                line.wake_sleepers();
            }
            // A missed wake-up is a deadlock, which loom reports.
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        });
    }
}

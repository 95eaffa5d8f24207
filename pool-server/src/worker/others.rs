//! The other sessions: what they hold unused of a device's memory is given back when this one finds none.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::tie::Tie;
use crate::tie::FromWorker;

/// Longer than a daemon that runs waits for them.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way to them, by the daemon.
pub struct Others {
    tie: Arc<Tie>,
    /// The number of the last question. Held while one is under way, so that threads take turns.
    asked: Mutex<u64>,
}

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

impl Others {
    pub(super) fn new(tie: Arc<Tie>) -> Self {
        Self { tie, asked: Mutex::new(0) }
    }

    /// Has them give back what they do not use of a device of this session. Waits for it, but not for long; never on the
    /// ring's thread.
    pub fn make_room(&self, device: u32) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        *asked += 1;
        let n = *asked;
        // A tie that is broken ends the process.
        if self.tie.send(&FromWorker::Short { n, device }).is_ok() {
            self.tie.others.wait_for(n, PATIENCE);
        }
    }
}

/// The newest question that has been answered.
#[derive(Debug, Default)]
pub struct Answers {
    answered: Mutex<u64>,
    bell: Condvar,
}

impl Answers {
    /// The daemon has answered question `n` and those before.
    pub fn answered(&self, n: u64) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = n;
        self.bell.notify_all();
    }

    fn wait_for(&self, n: u64, patience: Duration) {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.bell.wait_timeout_while(answered, patience, |answered| *answered < n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn an_answer_ends_the_wait_and_none_does_not_hold_it_for_ever() {
        let answers = Answers::default();
        let start = Instant::now();
        answers.wait_for(1, Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| answers.wait_for(2, Duration::from_secs(60)));
            answers.answered(1);
            answers.answered(2);
            waiting.join().unwrap();
        });
        assert!(start.elapsed() < Duration::from_secs(50));
    }
}

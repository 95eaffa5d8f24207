//! Copies to the device that the program takes for done and the device may still have before it.
//!
//! A synchronous copy from pageable memory is posted, and returns when its bytes are taken. The legacy stream and all that
//! orders itself by it come after it anyway. A non-blocking stream does not, and programs rely on its work finding the
//! bytes: so work that is posted to one after such a copy waits for it first, unless a wait that began after the copy is
//! over already. A wait that another thread has only begun is not enough.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::objects::lock;

/// Such copies, counted.
#[derive(Debug, Default)]
pub struct Unordered {
    posted: AtomicU64,
    /// Up to here a wait is over.
    awaited: AtomicU64,
    /// The context of a copy, so that the next one in it needs no lock.
    last: AtomicU64,
    /// The contexts whose legacy streams have had such copies.
    contexts: Mutex<Vec<u64>>,
}

impl Unordered {
    /// A copy was posted to the legacy stream of `context`.
    pub fn posted(&self, context: u64) {
        if self.last.load(Acquire) != context {
            let mut contexts = lock(&self.contexts);
            if !contexts.contains(&context) {
                contexts.push(context);
            }
            self.last.store(context, Release);
        }
        self.posted.fetch_add(1, AcqRel);
    }

    /// How many copies there were, if not all of them are waited for.
    #[inline]
    pub fn pending(&self) -> Option<u64> {
        let posted = self.posted.load(Acquire);
        (self.awaited.load(Acquire) < posted).then_some(posted)
    }

    /// The contexts to wait in, without those that are gone for ever.
    pub fn contexts(&self, mut exists: impl FnMut(u64) -> bool) -> Vec<u64> {
        let mut contexts = lock(&self.contexts);
        contexts.retain(|context| exists(*context));
        contexts.clone()
    }

    /// A wait in all of them is over that began when there were `copies`.
    pub fn awaited(&self, copies: u64) {
        self.awaited.fetch_max(copies, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_waited_for_until_a_wait_is_over() {
        let unordered = Unordered::default();
        assert_eq!(unordered.pending(), None);
        unordered.posted(5);
        unordered.posted(6);
        unordered.posted(5);
        let seen = unordered.pending().unwrap();
        assert_eq!(unordered.pending(), Some(seen), "another thread's wait is not over yet");
        assert_eq!(unordered.contexts(|_| true), [5, 6]);
        unordered.posted(6);
        unordered.awaited(seen);
        let later = unordered.pending().expect("a copy during the wait needs one of its own");
        unordered.awaited(later);
        unordered.awaited(seen);
        assert_eq!(unordered.pending(), None);
    }

    #[test]
    fn contexts_that_are_gone_are_forgotten() {
        let unordered = Unordered::default();
        unordered.posted(5);
        unordered.posted(6);
        assert_eq!(unordered.contexts(|context| context != 5), [6]);
        assert_eq!(unordered.contexts(|_| true), [6]);
    }
}

//! Copies to the device that the program takes for done and the device may still have before it.
//!
//! A synchronous copy from pageable memory is posted, and returns when its bytes are taken. The legacy stream and all that
//! orders itself by it come after it anyway. A non-blocking stream does not, and programs rely on its work finding the
//! bytes: so the first work that is posted to one after such a copy waits for it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// The context whose legacy stream has such copies, or 0.
#[derive(Debug, Default)]
pub struct Unordered(AtomicU64);

impl Unordered {
    /// A copy was posted to the legacy stream of `context`. Gives another context that must be waited for now, since only
    /// one is remembered.
    pub fn posted(&self, context: u64) -> Option<u64> {
        if self.0.load(Relaxed) == context {
            return None;
        }
        match self.0.swap(context, AcqRel) {
            0 => None,
            other if other == context => None,
            other => Some(other),
        }
    }

    /// The context to be waited for, if there is one; it is forgotten.
    #[inline]
    pub fn take(&self) -> Option<u64> {
        if self.0.load(Relaxed) == 0 {
            return None;
        }
        match self.0.swap(0, AcqRel) {
            0 => None,
            context => Some(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_waited_for_once_and_none_is_lost() {
        let unordered = Unordered::default();
        assert_eq!(unordered.take(), None);
        assert_eq!((unordered.posted(5), unordered.posted(5)), (None, None));
        assert_eq!(unordered.posted(6), Some(5), "the caller waits for the one that cannot be remembered");
        assert_eq!((unordered.take(), unordered.take()), (Some(6), None));
    }
}

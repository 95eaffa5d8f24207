//! Errors of posts. Nobody waits for a post, so what it failed with is kept for its context and told once, by the next
//! call of that context that CUDA lets report earlier errors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::code::Code;

/// Contexts that errors are kept for. More than this are only made by a client that wants to fill our memory.
const CONTEXTS_MAX: usize = 4096;

/// The first error of a post, a context.
#[derive(Debug, Default)]
pub struct PostErrors {
    any: AtomicBool,
    first: Mutex<HashMap<u64, Code>>,
}

impl PostErrors {
    /// A post of `context` has failed.
    pub fn note(&self, context: u64, code: Code) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() < CONTEXTS_MAX || first.contains_key(&context) {
            first.entry(context).or_insert(code);
            self.any.store(true, Ordering::Release);
        }
    }

    /// Takes the error that is to be told.
    #[inline]
    pub fn take(&self, context: u64) -> Option<Code> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let code = first.remove(&context);
        self.any.store(!first.is_empty(), Ordering::Release);
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_context_is_told_once() {
        let errors = PostErrors::default();
        assert_eq!(errors.take(5), None);
        errors.note(5, Code::INVALID_VALUE);
        errors.note(5, Code::UNKNOWN);
        errors.note(6, Code::UNKNOWN);
        assert_eq!(errors.take(7), None);
        assert_eq!(errors.take(5), Some(Code::INVALID_VALUE));
        assert_eq!(errors.take(5), None);
        assert_eq!(errors.take(6), Some(Code::UNKNOWN));
    }

    #[test]
    fn contexts_are_bounded() {
        let errors = PostErrors::default();
        (0..2 * CONTEXTS_MAX as u64).for_each(|context| errors.note(context, Code::UNKNOWN));
        assert_eq!(errors.first.lock().unwrap().len(), CONTEXTS_MAX);
    }
}

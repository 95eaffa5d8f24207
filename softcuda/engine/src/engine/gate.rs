//! Who else uses the processors: a device that several processes share runs blocks of one of them at a time.
#![forbid(unsafe_code)]

use crate::memory::door::{self, Inside};
use std::sync::atomic::AtomicU32;

/// Lets blocks run. Threads that run blocks ask it; the engine has none until it is given one.
pub trait Gate: Send + Sync {
    /// The calling thread is about to run blocks; returns when it may.
    fn begin(&self);
    /// Whether somebody else wants to run blocks: a thread between two blocks then ends, and begins again.
    fn is_lost(&self) -> bool;
    /// The calling thread runs no block any more.
    fn end(&self);
    /// A word whose upper half becomes other than 0 when threads that run blocks are to call [`Gate::heed`]: they look at it in every
    /// loop. The lower half is the engine's own. It lives and stays where it is as long as the gate.
    fn bell(&self) -> Option<&AtomicU32> {
        None
    }
    /// The calling thread runs a block and has seen the bell: if somebody else wants to run blocks, it ends and begins again.
    fn heed(&self) {}
    /// The calling thread is new and will run nothing but blocks: called once, before its first one.
    fn settle(&self) {}
}

/// The right to run blocks, as long as it lives: the gate's, and the memory's, whose mappings stay as they are.
pub(super) struct Pass<'a>(Option<&'a dyn Gate>, Option<Inside>);

impl<'a> Pass<'a> {
    /// Asks for it; without a gate nobody needs to.
    pub fn new(gate: Option<&'a dyn Gate>) -> Self {
        let mut pass = Pass(gate, None);
        pass.begin();
        pass
    }

    fn begin(&mut self) {
        if let Some(gate) = self.0 {
            gate.begin();
        }
        // After the gate, where it may stand for long.
        self.1 = Some(Inside::new());
    }

    fn end(&mut self) {
        self.1 = None;
        if let Some(gate) = self.0 {
            gate.end();
        }
    }

    /// Between two blocks: lets others go first who have the right to.
    pub fn renew(&mut self) {
        if door::is_closed() || self.0.is_some_and(Gate::is_lost) {
            self.end();
            self.begin();
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

//! Which streams a context has, to see whether all of it is idle.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::objects::Home;

/// The legacy default stream.
const LEGACY: u64 = 1;
/// As many streams are asked about one by one; with more, another thread waits for the context.
const FEW: usize = 16;

/// The driver's streams that were made and not destroyed, by context; lanes' own are among them.
#[derive(Debug, Default)]
pub struct Streams {
    by_context: Mutex<HashMap<Home, Vec<u64>>>,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<Home, Vec<u64>>> {
        self.by_context.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream was made.
    pub fn add(&self, home: Home, native: u64) {
        self.lock().entry(home).or_default().push(native);
    }

    /// A stream is about to be destroyed.
    pub fn remove(&self, home: Home, native: u64) {
        if let Some(streams) = self.lock().get_mut(&home) {
            streams.retain(|stream| *stream != native);
        }
    }

    /// A context is about to end.
    pub fn forget(&self, home: Home) {
        self.lock().remove(&home);
    }

    /// Whether `idle` holds for all streams of a context, its legacy one included; false when there are many. Streams
    /// are destroyed by the ring's thread, which is the one that asks.
    pub fn all(&self, home: Home, idle: impl Fn(u64) -> bool) -> bool {
        let by_context = self.lock();
        let streams = by_context.get(&home).map_or(&[][..], Vec::as_slice);
        streams.len() <= FEW && idle(LEGACY) && streams.iter().all(|stream| idle(*stream))
    }
}

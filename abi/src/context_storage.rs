//! Values that a runtime hangs onto contexts (the table CONTEXT_LOCAL_STORAGE), with their destructors.
//!
//! A runtime looks its value up before almost every call, so a look-up must cost next to nothing: each thread keeps
//! the last few answers and checks one counter that every removal and replacement moves.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What runs when a value goes: a C function of (context, key, value), wrapped by the caller.
pub type Destructor = std::sync::Arc<dyn Fn(usize, usize, usize) + Send + Sync>;

/// A value with what ends it.
struct Entry {
    value: usize,
    destructor: Option<Destructor>,
}

/// The values of all contexts.
pub struct Storage {
    entries: Mutex<BTreeMap<(usize, usize), Entry>>,
}

/// Moves with every removal and replacement in any storage. Common to all, so that a storage made at the address of
/// one that is gone cannot get its cached answers.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// A remembered answer. `generation` 0 is never current.
#[derive(Clone, Copy, Default)]
struct Cached {
    generation: u64,
    storage: usize,
    context: usize,
    key: usize,
    value: usize,
}

const WAYS: usize = 4;

thread_local! {
    static CACHE: [Cell<Cached>; WAYS] = const { [const { Cell::new(Cached { generation: 0, storage: 0, context: 0, key: 0, value: 0 }) }; WAYS] };
}

impl Default for Storage {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.forget_caches();
    }
}

impl Storage {
    /// An empty storage.
    pub const fn new() -> Self {
        Self { entries: Mutex::new(BTreeMap::new()) }
    }

    /// Sets the value of `key` in `context`. A value that is replaced goes without its destructor being called: the
    /// caller has just said what shall stand there.
    pub fn put(&self, context: usize, key: usize, value: usize, destructor: Option<Destructor>) {
        let replaced = self.lock().insert((context, key), Entry { value, destructor });
        if replaced.is_some() {
            self.forget_caches();
        }
    }

    /// The value of `key` in `context`.
    pub fn get(&self, context: usize, key: usize) -> Option<usize> {
        let way = ((key >> 4) ^ (key >> 12) ^ (context >> 4)) % WAYS;
        let storage = std::ptr::from_ref(self).addr();
        let generation = GENERATION.load(Ordering::Acquire);
        let hit = CACHE.try_with(|cache| {
            let c = cache[way].get();
            let same =
                c.generation == generation && c.storage == storage && c.context == context && c.key == key;
            same.then_some(c.value)
        });
        if let Ok(Some(value)) = hit {
            return Some(value);
        }
        let value = self.lock().get(&(context, key))?.value;
        // The cache is gone when a thread is ending; then every look-up takes the lock.
        let _ = CACHE.try_with(|cache| cache[way].set(Cached { generation, storage, context, key, value }));
        Some(value)
    }

    /// Takes the value of `key` in `context` away. False if there was none. The destructor is not called: NVIDIA's
    /// runtimes, which delete their values when the process ends, free them themselves (a call was seen to end in a
    /// double free).
    pub fn delete(&self, context: usize, key: usize) -> bool {
        let removed = self.lock().remove(&(context, key)).is_some();
        self.forget_caches();
        removed
    }

    /// Takes all values of `context` away and calls their destructors; to be called when a context is destroyed,
    /// while its handle still means it.
    pub fn context_destroyed(&self, context: usize) {
        let mut gone = Vec::new();
        {
            let mut entries = self.lock();
            let keys: Vec<_> =
                entries.range((context, 0)..=(context, usize::MAX)).map(|(key, _)| *key).collect();
            for key in keys {
                if let Some(entry) = entries.remove(&key) {
                    gone.push((key.1, entry));
                }
            }
        }
        self.forget_caches();
        for (key, entry) in gone {
            entry.finish(context, key);
        }
    }

    fn forget_caches(&self) {
        GENERATION.fetch_add(1, Ordering::AcqRel);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(usize, usize), Entry>> {
        // No code runs under the lock that could leave the map half changed.
        self.entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Entry {
    /// Runs the destructor; must be called without the lock, since it may come back into this storage.
    fn finish(self, context: usize, key: usize) {
        if let Some(destructor) = self.destructor {
            destructor(context, key, self.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn values_belong_to_context_and_key() {
        let s = Storage::new();
        s.put(1, 10, 100, None);
        s.put(1, 11, 101, None);
        s.put(2, 10, 200, None);
        assert_eq!((s.get(1, 10), s.get(1, 11), s.get(2, 10)), (Some(100), Some(101), Some(200)));
        assert_eq!((s.get(2, 11), s.get(3, 10)), (None, None));
        s.put(1, 10, 102, None);
        assert_eq!(s.get(1, 10), Some(102));
        assert!(s.delete(1, 10) && !s.delete(1, 10));
        assert_eq!((s.get(1, 10), s.get(2, 10)), (None, Some(200)));
        drop(s);
        assert_eq!(Storage::new().get(2, 10), None, "the cache of one storage answered for another");
    }

    #[test]
    fn destructors_run_once_with_the_context_and_may_come_back() {
        let s = Arc::new(Storage::new());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let destructor = |s: &Arc<Storage>| -> Option<Destructor> {
            let (s, calls) = (Arc::downgrade(s), calls.clone());
            Some(Arc::new(move |context, key, value| {
                let inside = s.upgrade().map(|s| s.get(context, key));
                assert_eq!(inside, Some(None), "the value is still there while its destructor runs");
                calls.lock().unwrap().push((context, key, value));
            }))
        };
        s.put(1, 5, 50, destructor(&s));
        s.put(2, 5, 60, destructor(&s));
        s.put(2, 6, 61, destructor(&s));
        assert!(s.delete(1, 5));
        assert!(calls.lock().unwrap().is_empty(), "who deletes a value ends it");
        s.context_destroyed(2);
        s.context_destroyed(2);
        let mut got = calls.lock().unwrap().clone();
        got.sort_unstable();
        assert_eq!(got, [(2, 5, 60), (2, 6, 61)]);
    }

    #[test]
    fn another_thread_sees_a_removal() {
        let s = Arc::new(Storage::new());
        s.put(1, 1, 7, None);
        assert_eq!(s.get(1, 1), Some(7));
        let t = s.clone();
        std::thread::spawn(move || assert!(t.delete(1, 1))).join().unwrap();
        assert_eq!(s.get(1, 1), None);
    }

    /// Not a benchmark: only a guard against a lock on the hot path. Unoptimised and loaded machines get room.
    #[test]
    fn a_repeated_look_up_is_quick() {
        let s = Storage::new();
        s.put(0x7000, 0x8000, 1, None);
        let started = std::time::Instant::now();
        for _ in 0..1_000_000 {
            assert_eq!(std::hint::black_box(&s).get(0x7000, 0x8000), Some(1));
        }
        let each = started.elapsed().as_nanos() / 1_000_000;
        assert!(each < 400, "{each} ns a look-up");
    }
}

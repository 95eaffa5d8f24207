//! What a device has in common with other processes: its processors, of which kernels of one process at a time have the
//! use, and its memory. See [`softcuda_device`].
//!
//! The device's file is opened at the first use, not by `cuInit`. Where it cannot be (which is said on stderr), the process
//! has the device to itself.
#![forbid(unsafe_code)]

use crate::config::{self, Config};
use crate::{clock, log, threads};
use softcuda_device::home;
use softcuda_device::state::{self, State};
use softcuda_device::turn::Turn;
use softcuda_engine::{Gate, Ledger};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// See the module.
pub struct Share {
    device: u32,
    uuid: [u8; 16],
    total: u64,
    slice: u64,
    joined: OnceLock<Option<Joined>>,
    /// Bytes that are taken of a device that is not shared.
    alone: AtomicU64,
}

struct Joined {
    state: Arc<State>,
    turn: Turn,
}

impl Share {
    /// Of a device with a UUID and so many bytes of memory.
    pub fn new(device: u32, uuid: [u8; 16], total: u64, config: &Config) -> Share {
        let slice = config.slice;
        Share { device, uuid, total, slice, joined: OnceLock::new(), alone: AtomicU64::new(0) }
    }

    fn joined(&self) -> Option<&Joined> {
        let join = || {
            let directory = state::directory(&home::directory());
            match State::join(&directory, &self.uuid, self.total) {
                Ok(state) => {
                    let state = Arc::new(state);
                    let turn = Turn::new(state.clone(), self.slice, self.device, log::trace());
                    Some(Joined { state, turn })
                }
                Err(error) => {
                    eprintln!(
                        "softcuda: {}: {error}; this process does not share device {} with others (SOFTCUDA_STATE names another directory)",
                        directory.display(),
                        self.device
                    );
                    None
                }
            }
        };
        self.joined.get_or_init(join).as_ref()
    }

    /// Runs a grid as one of this process, and notes when it ran, in the log and by [`clock`].
    pub fn kernel<T>(&self, stream: u64, name: &str, run: impl FnOnce() -> T) -> T {
        let joined = self.joined();
        if let Some(joined) = joined {
            joined.turn.enter();
        }
        let trace = log::trace();
        if trace.is_some() {
            // Its start is when the process has the device.
            self.begin();
            self.end();
        }
        let start = softcuda_device::now();
        let result = run();
        self.linger(softcuda_device::now() - start);
        let end = softcuda_device::now();
        clock::ended_at(end);
        if let Some(trace) = trace {
            trace.kernel(self.device, (start, end), stream, name);
        }
        if let Some(joined) = joined {
            joined.turn.leave();
        }
        result
    }

    /// Has the device for as long as `SOFTCUDA_SLOW` adds to work that took so many nanoseconds.
    fn linger(&self, took: u64) {
        let end = softcuda_device::now() + added(took);
        while is_slow() && softcuda_device::now() < end {
            self.begin();
            std::thread::sleep(Duration::from_nanos((end - softcuda_device::now().min(end)).min(500_000)));
            self.end();
        }
    }
}

/// Whether `SOFTCUDA_SLOW` asks for anything.
pub fn is_slow() -> bool {
    config::get().slow > 1.0
}

/// Nanoseconds that `SOFTCUDA_SLOW` adds to work that took so many.
fn added(took: u64) -> u64 {
    (took as f64 * (config::get().slow - 1.0)) as u64
}

/// Does a copy or a memory set, and then nothing for as long as `SOFTCUDA_SLOW` says.
pub fn slowed<T>(work: impl FnOnce() -> T) -> T {
    if !is_slow() {
        return work();
    }
    let start = softcuda_device::now();
    let result = work();
    std::thread::sleep(Duration::from_nanos(added(softcuda_device::now() - start)));
    result
}

impl Gate for Share {
    fn begin(&self) {
        if let Some(joined) = self.joined() {
            joined.turn.begin();
        }
    }
    fn is_lost(&self) -> bool {
        self.joined().is_some_and(|joined| joined.turn.is_lost())
    }
    fn end(&self) {
        if let Some(joined) = self.joined() {
            joined.turn.end();
        }
    }
    fn bell(&self) -> Option<&AtomicU32> {
        Some(self.joined()?.turn.bell())
    }
    fn heed(&self) {
        if let Some(joined) = self.joined() {
            joined.turn.heed();
        }
    }
    fn settle(&self) {
        threads::become_device();
    }
}

impl Ledger for Share {
    fn take(&self, bytes: u64) -> Result<(), u64> {
        if let Some(joined) = self.joined() {
            return joined.state.take(bytes);
        }
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.total);
        let taken = self.alone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|used| self.total - used.min(self.total))
    }
    fn give(&self, bytes: u64) {
        match self.joined() {
            Some(joined) => joined.state.give(bytes),
            None => _ = self.alone.fetch_sub(bytes, Ordering::Relaxed),
        }
    }
    fn used(&self) -> u64 {
        self.joined().map_or_else(|| self.alone.load(Ordering::Relaxed), |joined| joined.state.used())
    }
}

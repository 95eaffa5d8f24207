//! What processes share of softcuda's devices.
//!
//! * [`fleet`]: which devices there are, the same for the driver and for its NVML.
//! * [`setting`]: how settings in the environment are read.
//! * [`state`]: one small file a device, mapped by every process that uses it: who uses it, how much memory each has, for
//!   how long the device worked.
//! * [`turn`]: whose kernels run. A device runs kernels of one process at a time.
//! * [`signal`]: what an event is that several processes use.
//! * [`trace`]: the log of what devices did.

#![deny(unsafe_code)]

pub mod fleet;
pub mod home;
mod map;
pub mod process;
pub mod setting;
pub mod signal;
pub mod state;
pub mod trace;
pub mod turn;
mod watch;

/// Nanoseconds of the system's monotonic clock, which is the same for all processes.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

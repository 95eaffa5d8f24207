//! Whether any of some processes has ended, asked often: by one system call for all of them.

use crate::process::{self, Identity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// A descriptor for each process that was asked about; a system without such descriptors is asked by name each time.
#[derive(Default)]
pub(crate) struct Watch(Mutex<Vec<(Identity, OwnedFd)>>);

impl Watch {
    /// Whether one of these processes has ended. Those that are not named any more are forgotten.
    pub(crate) fn some_ended(&self, processes: impl Iterator<Item = Identity>) -> bool {
        let processes: Vec<Identity> = processes.collect();
        if processes.is_empty() {
            return false;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(process, _)| processes.contains(process));
        for process in processes {
            if known.iter().any(|(other, _)| *other == process) {
                continue;
            }
            match open(process) {
                Some(descriptor) => known.push((process, descriptor)),
                None if process::lives(process) => {}
                None => return true,
            }
        }
        let mut all: Vec<PollFd<'_>> = known.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)).collect();
        poll(&mut all, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended > 0)
    }
}

/// A descriptor that is readable when the process has ended; none if it has ended already.
fn open(process: Identity) -> Option<OwnedFd> {
    let pid = Pid::from_raw(process::number(process) as i32)?;
    let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The number may be another process's by now: looked at after the descriptor is there.
    process::lives(process).then_some(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen_once_it_is_there() {
        let watch = Watch::default();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = process::identity(child.id()).unwrap();
        let ask = |watch: &Watch| watch.some_ended([process::own(), process].into_iter());
        assert!(!ask(&watch) && !ask(&watch));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ask(&watch));
        assert!(ask(&Watch::default()), "one that was never seen alive");
        assert!(!watch.some_ended(std::iter::once(process::own())));
    }
}

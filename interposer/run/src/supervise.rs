//! Runs the program as a child and passes signals, stops and the way it ended through, as if it had been run alone.

use std::process::Child;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::os::Signals;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(u8),
    /// A signal ended it.
    Killed(i32),
}

/// Waits for the program to end. Meanwhile `idle` is called after every signal and at least every half second.
pub fn wait_for(program: &Child, signals: &Signals, mut idle: impl FnMut()) -> anyhow::Result<Ending> {
    let pid = Pid::from_raw(i32::try_from(program.id())?).context("the program has no process id")?;
    loop {
        if let Some(ending) = look(pid)? {
            return Ok(ending);
        }
        idle();
        let Some(received) = signals.wait(Duration::from_millis(500)) else { continue };
        if received.number == libc::SIGCHLD || received.by_terminal {
            continue;
        }
        if let Some(signal) = Signal::from_named_raw(received.number) {
            // The program may be gone in this very moment; the next look finds out.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Has the program ended? When it was stopped, this process stops too, so that a shell sees the job stop, and wakes the
/// program when it goes on itself.
fn look(pid: Pid) -> anyhow::Result<Option<Ending>> {
    let status = waitpid(Some(pid), WaitOptions::NOHANG | WaitOptions::UNTRACED)
        .context("cannot wait for the program")?;
    let Some((_, status)) = status else { return Ok(None) };
    if let Some(code) = status.exit_status() {
        return Ok(Some(Ending::Exited(code as u8)));
    }
    if let Some(signal) = status.terminating_signal() {
        return Ok(Some(Ending::Killed(signal)));
    }
    if status.stopped() {
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        let _ = kill_process(pid, Signal::CONT);
    }
    Ok(None)
}

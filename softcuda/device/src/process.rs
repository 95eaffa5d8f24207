//! Processes, told apart for ever: a number of a process is used again, its number with its start is not.

use rustix::process::{Pid, getpid};

/// A process: its number in the upper half, when it started (in ticks, cut to 32 bits) in the lower one. Never 0.
pub type Identity = u64;

/// This process.
pub fn own() -> Identity {
    identity(getpid().as_raw_nonzero().get() as u32).unwrap_or_default()
}

/// The process of a number; none if there is none, or it has ended and nobody has taken note.
pub fn identity(pid: u32) -> Option<Identity> {
    look(pid).map(|(identity, _)| identity)
}

/// A process that has not ended, and the letter of its state (proc(5)).
fn look(pid: u32) -> Option<(Identity, char)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; behind it come the state and, twenty fields on, the start.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start: u64 = fields.nth(18)?.parse().ok()?;
    let ended = matches!(state, 'Z' | 'X');
    (!ended).then_some((u64::from(pid) << 32 | start & 0xffff_ffff, state))
}

/// Whether a process is stopped, by a signal or a debugger: none of its threads runs.
pub fn is_stopped(process: Identity) -> bool {
    look(number(process)).is_some_and(|(identity, state)| identity == process && matches!(state, 'T' | 't'))
}

/// The number of a process.
pub fn number(identity: Identity) -> u32 {
    (identity >> 32) as u32
}

/// Whether a process still runs.
pub fn lives(process: Identity) -> bool {
    let exists = || {
        let pid = Pid::from_raw(number(process) as i32)?;
        // A process of another user cannot be signalled and exists all the same.
        match rustix::process::test_kill_process(pid) {
            Ok(()) | Err(rustix::io::Errno::PERM) => Some(()),
            Err(_) => None,
        }
    };
    exists().is_some() && identity(number(process)) == Some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_stopped_until_it_goes_on() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, process) = (Pid::from_child(&child), identity(child.id()).unwrap());
        assert!(!is_stopped(process));
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while !is_stopped(process) {
            std::thread::yield_now();
        }
        assert!(lives(process) && !is_stopped(process ^ 1), "the same number, another start");
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        while is_stopped(process) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_lives_until_it_ends() {
        assert!(lives(own()));
        assert!(!lives(own() ^ 1), "the same number, another start");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = identity(child.id()).unwrap();
        assert!(lives(process));
        child.kill().unwrap();
        // Not waited for yet: it is a zombie in the end, and dead.
        while lives(process) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!lives(process));
    }
}

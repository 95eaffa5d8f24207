//! Telling whoever started the daemon that it serves: a line to a descriptor, and systemd's protocol (sd_notify(3)).

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::Path;

use anyhow::{Context, ensure};

/// A descriptor that was handed over at start and waits for one line.
#[derive(Debug)]
pub struct ReadyFd(OwnedFd);

impl ReadyFd {
    /// Takes over a descriptor that this process inherited. Must be called before anything else is opened.
    pub fn inherited(number: i32) -> anyhow::Result<Self> {
        ensure!(number > 2, "--ready-fd {number}: 0, 1 and 2 are the standard streams");
        #[allow(unsafe_code)]
        // SAFETY: fcntl(2) with F_GETFD changes nothing, whatever the number is.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        ensure!(flags >= 0, "--ready-fd {number}: no such descriptor was handed over");
        #[allow(unsafe_code)]
        // SAFETY: the descriptor is open (above), came from the parent, and nothing in this process has opened or
        // taken one yet, so this is its only owner.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .with_context(|| format!("--ready-fd {number} cannot be kept from workers"))?;
        Ok(Self(fd))
    }

    /// Writes the line and closes the descriptor.
    pub fn tell(self, unix: Option<&Path>, tcp: Option<SocketAddr>) -> anyhow::Result<()> {
        File::from(self.0)
            .write_all(line(unix, tcp).as_bytes())
            .context("cannot write to the descriptor of --ready-fd")
    }
}

/// `listening unix=PATH tcp=ADDRESS:PORT`, without what there is not.
fn line(unix: Option<&Path>, tcp: Option<SocketAddr>) -> String {
    let mut line = String::from("listening");
    if let Some(path) = unix {
        line += &format!(" unix={}", path.display());
    }
    if let Some(address) = tcp {
        line += &format!(" tcp={address}");
    }
    line + "\n"
}

/// Sends a state such as `READY=1` to systemd, where it asked for one.
pub fn notify_systemd(state: &str) {
    let Some(target) = std::env::var_os("NOTIFY_SOCKET").filter(|t| !t.is_empty()) else { return };
    let bytes = target.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => UnixAddr::from_abstract_name(name),
        None => UnixAddr::from_pathname(&target),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("cannot tell systemd {state}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_what_there_is() {
        let (unix, tcp) = (Path::new("/run/p.sock"), "127.0.0.1:7070".parse().unwrap());
        assert_eq!(line(Some(unix), Some(tcp)), "listening unix=/run/p.sock tcp=127.0.0.1:7070\n");
        assert_eq!(line(None, Some(tcp)), "listening tcp=127.0.0.1:7070\n");
        assert_eq!(line(Some(unix), None), "listening unix=/run/p.sock\n");
    }

    #[test]
    fn wrong_descriptors_are_refused() {
        assert!(ReadyFd::inherited(2).unwrap_err().to_string().contains("standard streams"));
        assert!(ReadyFd::inherited(1_000_000).unwrap_err().to_string().contains("no such descriptor"));
    }
}

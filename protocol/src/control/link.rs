//! A non-blocking socket whose steps are bounded by deadlines, and the plain socket that it becomes.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// A session's data connection after `Attached`: blocking, without time-outs, with nothing read ahead.
#[derive(Debug)]
pub enum DataSocket {
    /// On one host; memory descriptors can be passed over it.
    Unix(UnixStream),
    /// Over a network.
    Tcp(TcpStream),
}

impl DataSocket {
    /// Wraps a connected socket that another process passed on, by asking the kernel what it is.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, false)?;
        match sockopt::socket_domain(&fd)? {
            AddressFamily::UNIX => Ok(Self::Unix(fd.into())),
            AddressFamily::INET | AddressFamily::INET6 => Ok(Self::Tcp(fd.into())),
            other => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a socket of family {} cannot carry a session's data", other.as_raw()),
            )),
        }
    }
}

impl DataSocket {
    /// The socket, if it is one of a network.
    pub fn into_tcp(self) -> Option<TcpStream> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(socket) => Some(socket),
        }
    }
}

impl AsFd for DataSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(s) => s.as_fd(),
            Self::Tcp(s) => s.as_fd(),
        }
    }
}

impl AsRawFd for DataSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl From<DataSocket> for OwnedFd {
    fn from(socket: DataSocket) -> Self {
        match socket {
            DataSocket::Unix(s) => s.into(),
            DataSocket::Tcp(s) => s.into(),
        }
    }
}

/// A connected, non-blocking, close-on-exec socket. All waiting is `poll` up to a deadline, and sends never raise
/// SIGPIPE: the process belongs to someone else.
#[derive(Debug)]
pub(super) struct Link {
    fd: OwnedFd,
}

/// Sets up a TCP connection so that the kernel notices within two seconds that the peer's host is gone, also while
/// nothing is sent. A peer whose process is only stopped stays: its kernel goes on answering.
pub fn watch_tcp_peer(socket: &impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(socket, 2)?;
    sockopt::set_tcp_user_timeout(socket, 2000)?;
    Ok(())
}

/// Takes the limit on unacknowledged bytes off again, for a data connection: a stopped process lets its buffers fill,
/// which would count as silence (tcp(7), TCP_USER_TIMEOUT), and must not cost it its session. The control connection
/// goes on watching the host.
pub fn let_tcp_peer_stall(socket: &impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(socket, 0)?;
    Ok(())
}

fn timed_out() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// A full backlog of a Unix socket cannot be polled for; this is how often the connection is tried again.
const BACKLOG_RETRY: Duration = Duration::from_millis(10);

impl Link {
    pub(super) fn connect_unix(path: &Path, deadline: Instant) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let address = SocketAddrUnix::new(path)?;
        loop {
            match rustix::net::connect(&fd, &address) {
                Ok(()) => return Ok(Self { fd }),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if Instant::now() + BACKLOG_RETRY < deadline => {
                    std::thread::sleep(BACKLOG_RETRY)
                }
                Err(Errno::AGAIN) => return Err(timed_out()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    pub(super) fn connect_tcp(address: SocketAddr, deadline: Instant) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let link = Self { fd };
        sockopt::set_tcp_nodelay(&link.fd, true)?;
        match rustix::net::connect(&link.fd, &address) {
            Ok(()) => return Ok(link),
            // An interrupted connect goes on by itself, like one in progress (connect(2)).
            Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        link.wait(PollFlags::OUT, deadline)?;
        sockopt::socket_error(&link.fd)??;
        Ok(link)
    }

    /// The peer's address, for TCP.
    pub(super) fn peer(&self) -> io::Result<Option<SocketAddr>> {
        let any = rustix::net::getpeername(&self.fd)?;
        Ok(any.and_then(|a| SocketAddr::try_from(a).ok()))
    }

    pub(super) fn send_all(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_send(bytes)? {
                Some(n) => bytes = &bytes[n..],
                None => self.wait(PollFlags::OUT, deadline)?,
            }
        }
        Ok(())
    }

    /// Fills `buffer`; the end of the stream before that is `UnexpectedEof`.
    pub(super) fn receive_exact(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            // Checked here as well: a peer that sends a byte now and then never lets `wait` run out.
            if Instant::now() >= deadline {
                return Err(timed_out());
            }
            match self.try_receive(&mut buffer[filled..])? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(n) => filled += n,
                None => self.wait(PollFlags::IN, deadline)?,
            }
        }
        Ok(())
    }

    /// Sends what goes without waiting; `None`: nothing does.
    pub(super) fn try_send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => return Ok(Some(n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Receives what is there; `None`: nothing is; `Some(0)`: the stream has ended.
    pub(super) fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((n, _)) => return Ok(Some(n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn wait(&self, events: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out());
            }
            let timeout = Timespec::try_from(left).map_err(|_| timed_out())?;
            match poll(&mut [PollFd::new(&self.fd, events)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    pub(super) fn into_data_socket(self) -> io::Result<DataSocket> {
        DataSocket::from_fd(self.fd)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

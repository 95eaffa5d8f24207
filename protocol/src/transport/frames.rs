//! Reading the frames of the TCP transport: {offset u32, length u32, bytes}, little-endian, applied to the incoming
//! region in order. A frame of eight bytes at a multiple of eight is a word and is stored atomically.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{self, Release};

use rustix::net::RecvFlags;

use crate::wire::direct::Places;
use crate::wire::landing::Landings;
use crate::wire::layout::{CHUNK_BYTES, down};
use crate::wire::memory::{Outside, Region};
use crate::wire::state::LinkError;

/// Bytes before a frame's own.
pub const HEADER_BYTES: usize = 8;

const BUFFER_BYTES: usize = 64 * 1024;
/// With this much of a frame outstanding and nothing buffered, it is received straight into the region.
const DIRECT_MIN: usize = 8 * 1024;

/// A frame's header.
pub fn header(offset: u32, len: usize) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&offset.to_le_bytes());
    bytes[4..].copy_from_slice(&(len as u32).to_le_bytes());
    bytes
}

/// Where frames go.
#[derive(Clone, Copy)]
pub struct Into<'a> {
    /// The incoming region.
    pub region: &'a Region,
    /// Places outside of it for what they are for; only where the incoming region is a client's.
    pub outside: Option<Beyond<'a>>,
}

/// What of a client's bytes goes to the program's memory.
#[derive(Clone, Copy)]
pub struct Beyond<'a> {
    /// Places for the bytes of chunks.
    pub places: &'a Places,
    /// The number of the thread that reads, among those that may read at the same time.
    pub reader: usize,
    /// Places for bytes that nobody waits for; over the first connection only.
    pub landings: Option<&'a Landings>,
}

impl Into<'_> {
    fn place<R>(&self, offset: u32, len: usize, receive: impl FnOnce(Outside) -> R) -> Option<R> {
        let Beyond { places, reader, landings } = self.outside?;
        let Some(at) = offset.checked_sub(down::LANDING_AREA).filter(|at| *at < CHUNK_BYTES) else {
            return places.with(reader, offset, len, receive);
        };
        let landings = landings?;
        let word = |offset| self.region.word64(offset).load(Ordering::Relaxed);
        let at = word(down::LANDING_AT).checked_add(u64::from(at))?;
        landings.with(word(down::LANDING), at, len, receive)
    }

    fn store(&self, offset: u32, value: u64) {
        if offset == down::LANDING_OVER
            && let Some(landings) = self.outside.and_then(|beyond| beyond.landings)
        {
            landings.over(value);
        }
        self.region.word64(offset).store(value, Release);
    }

    /// Receives the rest of a frame straight to where it belongs.
    fn receive(&self, socket: BorrowedFd<'_>, frame: Frame, wait: bool) -> std::io::Result<usize> {
        let Frame { offset, left } = frame;
        let outside = self.place(offset, left, |outside| outside.receive(socket, wait));
        outside.unwrap_or_else(|| self.region.receive(socket, offset, left, wait))
    }

    fn copy_in(&self, offset: u32, bytes: &[u8]) {
        if self.place(offset, bytes.len(), |outside| outside.copy_in(bytes)).is_none() {
            self.region.copy_in(offset, bytes);
        }
    }
}

/// What has come in and is not applied yet.
pub struct FrameReader {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    frame: Frame,
}

/// The rest of the frame that is being applied; no bytes: a header comes next.
#[derive(Clone, Copy, Default)]
struct Frame {
    offset: u32,
    left: usize,
}

impl Frame {
    fn is_word(&self) -> bool {
        self.left == 8 && self.offset.is_multiple_of(8)
    }
}

impl FrameReader {
    /// A reader at the start of a connection.
    pub fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, frame: Frame::default() }
    }

    /// Reads once and applies what is complete. Without `wait` it returns at once, with it when something has come or
    /// the socket's receive time-out has passed. `Ok(false)`: nothing had come.
    pub fn pump(&mut self, socket: BorrowedFd<'_>, into: Into<'_>, wait: bool) -> Result<bool, LinkError> {
        let direct = self.start == self.end && self.frame.left >= DIRECT_MIN;
        let got = if direct {
            into.receive(socket, self.frame, wait)
        } else {
            let room = &mut self.buffer[self.end..];
            let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            rustix::net::recv(socket, room, flags).map(|(got, _)| got).map_err(std::io::Error::from)
        };
        match got {
            Ok(0) => Err(LinkError::Closed),
            Ok(got) if direct => {
                self.frame.offset += got as u32;
                self.frame.left -= got;
                Ok(true)
            }
            Ok(got) => {
                self.end += got;
                self.apply(into)?;
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Err(LinkError::Closed),
            Err(e) => Err(LinkError::system("reading the data connection", e)),
        }
    }

    /// Applies the buffered bytes as far as they go; fewer than 16 are left over.
    fn apply(&mut self, into: Into<'_>) -> Result<(), LinkError> {
        let region = into.region;
        loop {
            let have = &self.buffer[self.start..self.end];
            if self.frame.left == 0 {
                let Some((head, _)) = have.split_first_chunk::<HEADER_BYTES>() else { break };
                self.frame = parse(head, region)?;
                self.start += HEADER_BYTES;
            } else if self.frame.is_word() {
                let Some((word, _)) = have.split_first_chunk::<8>() else { break };
                // The end of a chunk's bytes can look like a word.
                if into.place(self.frame.offset, 8, |outside| outside.copy_in(word)).is_none() {
                    into.store(self.frame.offset, u64::from_le_bytes(*word));
                }
                self.frame.left = 0;
                self.start += 8;
            } else {
                let now = have.len().min(self.frame.left);
                if now == 0 {
                    break;
                }
                into.copy_in(self.frame.offset, &have[..now]);
                // Stays a plain frame although eight bytes may be left of it: `is_word` then stores the same bytes.
                self.frame.offset += now as u32;
                self.frame.left -= now;
                self.start += now;
            }
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        Ok(())
    }
}

fn parse(head: &[u8; HEADER_BYTES], region: &Region) -> Result<Frame, LinkError> {
    let offset = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let left = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if left == 0 || !region.holds(offset, left) {
        return Err(LinkError::protocol(format!(
            "a frame of {left} bytes at {offset} is outside the region"
        )));
    }
    Ok(Frame { offset, left })
}

//! Preamble and frames as pure functions over bytes, shared by the blocking client, the worker and the async daemon.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use bincode::{Decode, Encode};
use thiserror::Error;

/// No message body is longer.
pub const MESSAGE_MAX: usize = 1 << 20;

/// What a server takes as the first message of a connection, before it knows who speaks.
pub const FIRST_MESSAGE_MAX: usize = 64 << 10;

/// Length of the preamble.
pub const PREAMBLE_LEN: usize = 8;

const MAGIC: [u8; 4] = *b"GPUP";

type Config = Configuration<LittleEndian, Fixint, Limit<MESSAGE_MAX>>;
const CONFIG: Config =
    bincode::config::standard().with_little_endian().with_fixed_int_encoding().with_limit::<MESSAGE_MAX>();

/// Why bytes are not a message.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The announced length is over the limit.
    #[error("a message of {length} bytes is announced, at most {limit} are allowed")]
    TooLong {
        /// Announced length.
        length: usize,
        /// The limit that held.
        limit: usize,
    },
    /// The body does not decode.
    #[error("the message does not decode: {0}")]
    Body(#[from] bincode::error::DecodeError),
    /// A value that does not fit a message.
    #[error("the message does not encode: {0}")]
    Encode(#[from] bincode::error::EncodeError),
    /// The body decodes, but is longer than its message.
    #[error("{extra} bytes follow the message inside its frame")]
    Trailing {
        /// Bytes that remain.
        extra: usize,
    },
}

/// Why 8 bytes are not this release's preamble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PreambleError {
    /// The peer does not speak this protocol at all.
    #[error("the peer does not begin with GPUP")]
    NotOurs,
    /// The peer speaks it in another version.
    #[error("the peer speaks wire version {theirs}, this side {ours}", ours = crate::WIRE_VERSION)]
    Version {
        /// The peer's number.
        theirs: u32,
    },
}

/// The 8 bytes with which both sides begin.
pub fn preamble() -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..].copy_from_slice(&crate::WIRE_VERSION.to_le_bytes());
    bytes
}

/// Checks the peer's 8 bytes.
pub fn read_preamble(bytes: [u8; PREAMBLE_LEN]) -> Result<(), PreambleError> {
    let [m0, m1, m2, m3, version @ ..] = bytes;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(PreambleError::NotOurs);
    }
    match u32::from_le_bytes(version) {
        crate::WIRE_VERSION => Ok(()),
        theirs => Err(PreambleError::Version { theirs }),
    }
}

/// The body length that a frame's first 4 bytes announce, if it is within `limit`.
pub fn frame_length(head: [u8; 4], limit: usize) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes(head) as usize;
    if length > limit { Err(FrameError::TooLong { length, limit }) } else { Ok(length) }
}

/// A whole frame: length and body.
pub fn encode<M: Encode>(message: &M) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; 4];
    let body = bincode::encode_to_vec(message, CONFIG)?;
    let length = match u32::try_from(body.len()) {
        Ok(length) if body.len() <= MESSAGE_MAX => length,
        _ => return Err(FrameError::TooLong { length: body.len(), limit: MESSAGE_MAX }),
    };
    frame.copy_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// The message in a frame's body. Bytes left over are an error.
pub fn decode<M: Decode<()>>(body: &[u8]) -> Result<M, FrameError> {
    let (message, used) = bincode::decode_from_slice(body, CONFIG)?;
    match body.len() - used {
        0 => Ok(message),
        extra => Err(FrameError::Trailing { extra }),
    }
}

/// Collects bytes as they come and gives whole frames out, so that a read can be given up at any moment.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

impl FrameBuffer {
    /// A buffer that takes bodies of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// Adds what was received.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, or `None` until more bytes have come.
    pub fn next_message<M: Decode<()>>(&mut self) -> Result<Option<M>, FrameError> {
        let Some(head) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let end = 4 + frame_length(*head, self.limit)?;
        let Some(body) = self.bytes.get(4..end) else { return Ok(None) };
        let message = decode(body)?;
        self.bytes.drain(..end);
        Ok(Some(message))
    }
}

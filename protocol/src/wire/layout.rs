//! Every offset, size and count of the two regions, and the record header. Nothing else in the project may know them.
//!
//! Words that one side polls have a 64-byte line of their own. Both regions are multiples of 64 KiB, since a host
//! with larger pages than ours refuses other sizes. All values are little-endian.

const _: () = assert!(cfg!(target_endian = "little"), "the wire is little-endian and read in place");

/// One cache line.
pub const LINE: u32 = 64;
/// What the regions' lengths are multiples of.
pub const GRAIN: u32 = 64 * 1024;

/// Reply slots, hence calls that may be waited for at the same time.
pub const SLOTS: u32 = 1024;
/// Bytes of a reply slot: {done u64, result i32, length u32, payload}.
pub const SLOT_BYTES: u32 = 64;
/// Longest reply that fits a slot.
pub const SLOT_PAYLOAD: u32 = SLOT_BYTES - 16;
/// Bit of a slot's length word: the reply's bytes are in the down-chunk that the record named.
pub const REPLY_IN_CHUNK: u32 = 1 << 31;
/// Bit of a slot's length word beside [`REPLY_IN_CHUNK`]: the bytes come over another connection. They are there when the
/// chunk's word of [`down::delivered`] has the value of `done`.
pub const REPLY_BY_BULK: u32 = 1 << 30;

/// Staging chunks in each direction.
pub const CHUNKS: u32 = 16;
/// Bytes of a staging chunk.
pub const CHUNK_BYTES: u32 = 512 * 1024;

/// Bytes of the command ring.
pub const RING_BYTES: u32 = 1024 * 1024;
/// Longest record, header included. A launch can carry 32 KiB of arguments; bulk bytes go by chunks.
pub const RECORD_BYTES_MAX: u32 = 64 * 1024;
/// Longest body of a record.
pub const BODY_BYTES_MAX: usize = (RECORD_BYTES_MAX - Head::BYTES) as usize;

/// 64-bit words of the completion board.
pub const BOARD_WORDS: u32 = 64 * 1024;
/// Entries of the host-callback queue.
pub const CALLBACKS: u32 = 1024;

/// The region that the client writes and the worker reads.
pub mod up {
    use super::*;

    /// u64: all records below this ring position are complete.
    pub const PUBLISHED: u32 = 0;
    /// u32: client threads that sleep on the client's bell ([`super::down::CLIENT_BELL`]).
    pub const CLIENT_SLEEP: u32 = LINE;
    /// u32: client threads that wait for ring space.
    pub const SPACE_WANTED: u32 = 2 * LINE;
    /// u32: changed by the client to wake the worker.
    pub const WORKER_BELL: u32 = 3 * LINE;
    /// u64: entries of the callback queue that the client has taken.
    pub const CALLBACKS_TAKEN: u32 = 4 * LINE;
    /// u32 a slot: not zero while a client thread sleeps on that slot's `done` word.
    pub const SLOT_SLEEP: u32 = 4096;
    const SLOT_SLEEP_END: u32 = SLOT_SLEEP + 4 * SLOTS;
    /// u64 an up-chunk: how often bytes that fill it have come over another connection than the first. It comes after them.
    pub const SENT: u32 = SLOT_SLEEP_END.next_multiple_of(LINE);
    const SENT_END: u32 = SENT + 8 * CHUNKS;
    /// The command ring.
    pub const RING: u32 = GRAIN;
    /// The staging chunks for bytes that go to the device.
    pub const CHUNK_AREA: u32 = RING + RING_BYTES;
    /// The region's length.
    pub const BYTES: u32 = CHUNK_AREA + CHUNKS * CHUNK_BYTES;

    const _: () = assert!(CALLBACKS_TAKEN + LINE <= SLOT_SLEEP && SENT_END <= RING);
    const _: () = assert!(RING_BYTES.is_power_of_two() && RECORD_BYTES_MAX <= RING_BYTES / 8);
    const _: () = assert!(
        RING.is_multiple_of(GRAIN) && CHUNK_AREA.is_multiple_of(GRAIN) && BYTES.is_multiple_of(GRAIN)
    );

    /// Offset of a slot's sleep word. `slot` must be below [`SLOTS`].
    pub const fn slot_sleep(slot: u32) -> u32 {
        assert!(slot < SLOTS);
        SLOT_SLEEP + 4 * slot
    }

    /// Offset of a chunk. `index` must be below [`CHUNKS`].
    pub const fn chunk(index: u32) -> u32 {
        assert!(index < CHUNKS);
        CHUNK_AREA + CHUNK_BYTES * index
    }

    /// Offset of a chunk's word of [`SENT`]. `index` must be below [`CHUNKS`].
    pub const fn sent(index: u32) -> u32 {
        assert!(index < CHUNKS);
        SENT + 8 * index
    }
}

/// The region that the worker writes and the client reads.
pub mod down {
    use super::*;

    /// u64: all records below this ring position are done with; their space is free.
    pub const CONSUMED: u32 = 0;
    /// u32: odd while the worker sleeps on its bell ([`super::up::WORKER_BELL`]), and never the same for two sleeps.
    pub const WORKER_SLEEP: u32 = LINE;
    /// u32: changed by the worker to wake client threads.
    pub const CLIENT_BELL: u32 = 2 * LINE;
    /// u64: the sticky status, code in the low half and call in the high half; zero while all is well.
    pub const STATUS: u32 = 3 * LINE;
    /// u64: the ring position of the record that broke the session.
    pub const STATUS_POSITION: u32 = STATUS + 8;
    /// u64: bytes that kernels have printed and that the client has been sent.
    pub const OUTPUT_WRITTEN: u32 = 4 * LINE;
    /// u64: entries that were ever put into the callback queue.
    pub const CALLBACKS_QUEUED: u32 = 5 * LINE;
    /// u64 an up-chunk: how often the worker has given that chunk back.
    pub const RELEASES: u32 = 6 * LINE;
    const RELEASES_END: u32 = RELEASES + 8 * CHUNKS;
    /// u64: the landing (see [`crate::wire::landing`]) for which the window's next bytes are.
    pub const LANDING: u32 = RELEASES_END.next_multiple_of(LINE);
    /// u64: where in it they belong.
    pub const LANDING_AT: u32 = LANDING + 8;
    /// u64: a landing that is over.
    pub const LANDING_OVER: u32 = LANDING + 16;
    /// u64 an entry: the callback queue.
    pub const CALLBACK_QUEUE: u32 = 8192;
    const CALLBACK_QUEUE_END: u32 = CALLBACK_QUEUE + 8 * CALLBACKS;
    /// u64 an up-chunk: what the worker has seen of [`super::up::SENT`], and so of the bytes before it.
    pub const ARRIVED: u32 = CALLBACK_QUEUE_END;
    /// u64 a down-chunk: `done` of the newest answer whose bytes have come over another connection. It comes after them.
    pub const DELIVERED: u32 = ARRIVED + 8 * CHUNKS;
    const DELIVERED_END: u32 = DELIVERED + 8 * CHUNKS;
    /// The reply slots.
    pub const SLOT_AREA: u32 = GRAIN;
    /// The completion board.
    pub const BOARD: u32 = SLOT_AREA + SLOTS * SLOT_BYTES;
    /// The staging chunks for bytes that come back.
    pub const CHUNK_AREA: u32 = BOARD + 8 * BOARD_WORDS;
    /// The window for bytes of landings, as long as a chunk. They are received elsewhere; nothing ever stands here for long.
    pub const LANDING_AREA: u32 = CHUNK_AREA + CHUNKS * CHUNK_BYTES;
    /// The region's length.
    pub const BYTES: u32 = LANDING_AREA + CHUNK_BYTES;

    const _: () = assert!(CALLBACKS_QUEUED + LINE <= RELEASES && LANDING + LINE <= CALLBACK_QUEUE);
    const _: () = assert!(DELIVERED_END <= SLOT_AREA && CALLBACKS.is_power_of_two());
    const _: () = assert!(
        SLOT_AREA.is_multiple_of(LINE) && SLOT_BYTES.is_multiple_of(LINE) && BOARD.is_multiple_of(LINE)
    );
    const _: () = assert!(CHUNK_AREA.is_multiple_of(GRAIN) && BYTES.is_multiple_of(GRAIN));

    /// Offset of a reply slot; its first word is `done`. `slot` must be below [`SLOTS`].
    pub const fn slot(slot: u32) -> u32 {
        assert!(slot < SLOTS);
        SLOT_AREA + SLOT_BYTES * slot
    }

    /// Offset of a board word. `index` must be below [`BOARD_WORDS`].
    pub const fn board(index: u32) -> u32 {
        assert!(index < BOARD_WORDS);
        BOARD + 8 * index
    }

    /// Offset of an up-chunk's release word. `index` must be below [`CHUNKS`].
    pub const fn release(index: u32) -> u32 {
        assert!(index < CHUNKS);
        RELEASES + 8 * index
    }

    /// Offset of an up-chunk's word of [`ARRIVED`]. `index` must be below [`CHUNKS`].
    pub const fn arrived(index: u32) -> u32 {
        assert!(index < CHUNKS);
        ARRIVED + 8 * index
    }

    /// Offset of a down-chunk's word of [`DELIVERED`]. `index` must be below [`CHUNKS`].
    pub const fn delivered(index: u32) -> u32 {
        assert!(index < CHUNKS);
        DELIVERED + 8 * index
    }

    /// Offset of the callback queue's entry number `count`.
    pub const fn callback(count: u64) -> u32 {
        CALLBACK_QUEUE + 8 * (count % CALLBACKS as u64) as u32
    }

    /// Offset of a chunk. `index` must be below [`CHUNKS`].
    pub const fn chunk(index: u32) -> u32 {
        assert!(index < CHUNKS);
        CHUNK_AREA + CHUNK_BYTES * index
    }
}

/// The call number of a record that is only skipped: it fills the ring's end. No call may have it.
pub const PAD: u16 = u16::MAX;

const NO_SLOT: u32 = u32::MAX;
const FLAG_UP: u16 = 1 << 0;
const FLAG_DOWN: u16 = 1 << 1;
const UP_SHIFT: u32 = 4;
const DOWN_SHIFT: u32 = 8;
const INDEX_MASK: u16 = 0xF;
const _: () = assert!(CHUNKS as u16 == INDEX_MASK + 1);

/// A record's header, as it goes over the wire: {length u32, call u16, flags u16, lane u32, slot u32, context u64}.
/// The flags say which chunks the record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes of header and body.
    pub length: u32,
    /// The call's number in the call list.
    pub call: u16,
    /// The up-chunk that goes with this record, below [`CHUNKS`].
    pub chunk_up: Option<u32>,
    /// The down-chunk that the answer may use, below [`CHUNKS`].
    pub chunk_down: Option<u32>,
    /// The client thread.
    pub lane: u32,
    /// The reply slot that the client waits at, below [`SLOTS`]; `None` for a post.
    pub slot: Option<u32>,
    /// The calling thread's current context (a client-made handle), or 0.
    pub context: u64,
}

/// A header that no client of ours makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHead {
    /// A flag bit that has no meaning.
    #[error("the record header has unknown flags {0:#06x}")]
    Flags(u16),
    /// A slot that does not exist.
    #[error("the record names reply slot {0}, and there are {SLOTS}")]
    Slot(u32),
}

impl Head {
    /// Bytes of a header.
    pub const BYTES: u32 = 24;
    const WORDS: usize = Self::BYTES as usize / 8;

    /// The header as the 64-bit words that stand in the ring.
    #[inline(always)]
    pub fn words(&self) -> [u64; Self::WORDS] {
        let chunk =
            |index: Option<u32>, flag, shift| index.map_or(0, |i| flag | ((i as u16 & INDEX_MASK) << shift));
        let flags = chunk(self.chunk_up, FLAG_UP, UP_SHIFT) | chunk(self.chunk_down, FLAG_DOWN, DOWN_SHIFT);
        [
            u64::from(self.length) | u64::from(self.call) << 32 | u64::from(flags) << 48,
            u64::from(self.lane) | u64::from(self.slot.unwrap_or(NO_SLOT)) << 32,
            self.context,
        ]
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES as usize] {
        let mut bytes = [0; Self::BYTES as usize];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads and checks a private copy of a header. The length is not checked here: the ring's reader needed it to
    /// make the copy.
    pub fn decode(bytes: &[u8; Self::BYTES as usize]) -> Result<Self, BadHead> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let flags = u16_at(6);
        let known = FLAG_UP
            | FLAG_DOWN
            | if flags & FLAG_UP != 0 { INDEX_MASK << UP_SHIFT } else { 0 }
            | if flags & FLAG_DOWN != 0 { INDEX_MASK << DOWN_SHIFT } else { 0 };
        if flags & !known != 0 {
            return Err(BadHead::Flags(flags));
        }
        let chunk = |flag, shift| (flags & flag != 0).then_some(u32::from((flags >> shift) & INDEX_MASK));
        let slot = match u32_at(12) {
            NO_SLOT => None,
            slot if slot < SLOTS => Some(slot),
            slot => return Err(BadHead::Slot(slot)),
        };
        Ok(Self {
            length: u32_at(0),
            call: u16_at(4),
            chunk_up: chunk(FLAG_UP, UP_SHIFT),
            chunk_down: chunk(FLAG_DOWN, DOWN_SHIFT),
            lane: u32_at(8),
            slot,
            context: u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32,
        })
    }

    /// The first eight bytes of a `PAD` record of `length` bytes: all that such a record has.
    pub fn pad_word(length: u32) -> u64 {
        u64::from(length) | u64::from(PAD) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_comes_back_as_it_went(
            length: u32, call: u16, lane: u32, context: u64,
            chunk_up in proptest::option::of(0..CHUNKS), chunk_down in proptest::option::of(0..CHUNKS),
            slot in proptest::option::of(0..SLOTS),
        ) {
            let head = Head { length, call, chunk_up, chunk_down, lane, slot, context };
            prop_assert_eq!(Head::decode(&head.encode()), Ok(head));
        }

        #[test]
        fn whatever_decodes_names_only_what_exists(bytes: [u8; 24]) {
            if let Ok(head) = Head::decode(&bytes) {
                prop_assert!(head.slot.is_none_or(|s| s < SLOTS));
                prop_assert!(head.chunk_up.is_none_or(|c| c < CHUNKS));
                prop_assert!(head.chunk_down.is_none_or(|c| c < CHUNKS));
                prop_assert_eq!(head.encode(), bytes);
            }
        }
    }
}

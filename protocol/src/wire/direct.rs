//! Bytes for a down-chunk that go straight to where the program wants them, so that they are not copied once more.
//!
//! Where the peer's bytes are received (and not mapped), a thread that waits for a chunk's bytes can say where they belong.
//! Whoever reads from the socket then receives them there. Nothing is received there any more once the place was taken
//! back, whatever the peer sends.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicUsize};

use super::client_chunks::DownChunk;
use super::layout::{CHUNK_BYTES, CHUNKS, down};
use super::memory::Outside;
use crate::control::CONNECTIONS_MAX;

const NOBODY: u32 = u32::MAX;

/// For each chunk, where its bytes belong.
#[derive(Debug)]
pub struct Places {
    places: [Place; CHUNKS as usize],
    /// The chunk whose place each reader is using. There is one for each connection.
    used: [AtomicU32; CONNECTIONS_MAX as usize],
}

/// An address (0: none) and how many bytes are there.
#[derive(Debug)]
struct Place {
    address: AtomicUsize,
    len: AtomicUsize,
}

impl Default for Places {
    fn default() -> Self {
        let place = || Place { address: AtomicUsize::new(0), len: AtomicUsize::new(0) };
        Self {
            places: std::array::from_fn(|_| place()),
            used: [const { AtomicU32::new(NOBODY) }; CONNECTIONS_MAX as usize],
        }
    }
}

impl Places {
    /// Lets `receive` have the place for `len` bytes that the peer sends to `offset` of its region; `None` if they belong
    /// into the region. Only from the one thread that is `reader` now, below [`CONNECTIONS_MAX`].
    pub fn with<R>(
        &self,
        reader: usize,
        offset: u32,
        len: usize,
        receive: impl FnOnce(Outside) -> R,
    ) -> Option<R> {
        let at = offset.checked_sub(down::CHUNK_AREA)?;
        let (index, at) = (at / CHUNK_BYTES, (at % CHUNK_BYTES) as usize);
        let place = self.places.get(index as usize)?;
        if place.address.load(Relaxed) == 0 {
            return None;
        }
        // Said before the address is believed: either `clear` sees that it is being used, or it is not seen here.
        self.used[reader].store(index, SeqCst);
        let (address, room) = (place.address.load(SeqCst), place.len.load(Relaxed));
        let fits = address != 0 && at.checked_add(len).is_some_and(|end| end <= room);
        // SAFETY: `receive_into`'s caller has promised these bytes until `clear` is over, which waits for `used`.
        let result = fits.then(|| receive(unsafe { Outside::new(address + at, len) }));
        self.used[reader].store(NOBODY, SeqCst);
        result
    }

    fn set(&self, index: u32, address: usize, len: usize) {
        let place = &self.places[index as usize];
        place.len.store(len, Relaxed);
        place.address.store(address, SeqCst);
    }

    /// Takes a place back. Waits until nothing is being received there; the answer that the chunk was for has come, or the
    /// link is broken, so that is at once.
    pub(super) fn clear(&self, index: u32) {
        let place = &self.places[index as usize];
        if place.address.swap(0, SeqCst) != 0 {
            while self.used.iter().any(|used| used.load(SeqCst) == index) {
                std::thread::yield_now();
            }
        }
    }
}

impl DownChunk<'_> {
    /// Has the chunk's bytes put at `to` as they come, if this link can. Then the answer's bytes stand there, and copying
    /// from the answer does nothing.
    ///
    /// # Safety
    /// `len` bytes at `to` can be written until this value is dropped, and nobody else uses them until then.
    pub unsafe fn receive_into(&mut self, to: *mut u8, len: usize) {
        if let Some(places) = self.link.transport.places() {
            places.set(self.index, to.expose_provenance(), len);
            self.direct = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fits_its_chunks_place_goes_there() {
        let (places, mut bytes) = (Places::default(), [0u8; 100]);
        let address = bytes.as_mut_ptr().expose_provenance();
        places.set(3, address, 100);
        let start = down::chunk(3);
        let place = |offset, len| places.with(0, offset, len, |outside| outside.address());
        assert_eq!(place(start, 100), Some(address));
        assert_eq!(place(start + 90, 10), Some(address + 90));
        for (offset, len) in [
            (start + 90, 11),
            (start, usize::MAX),
            (start - 1, 1),
            (start + 100, 1),
            (0, 1),
            (down::BYTES, 1),
        ] {
            assert_eq!(place(offset, len), None, "{len} at {offset}");
        }
        places.clear(3);
        assert_eq!(place(start, 1), None);
    }

    #[test]
    fn a_place_that_is_taken_back_is_not_used_any_more() {
        let places = Places::default();
        for round in 1..=2000usize {
            places.set(1, round * 16, 16);
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    places.with(7, down::chunk(1), 16, |outside| {
                        // While it is used, nobody has taken it back.
                        std::hint::black_box(outside.address());
                        places.used[7].load(SeqCst)
                    })
                });
                places.clear(1);
                assert_ne!(places.used[7].load(SeqCst), 1, "still in use after it was taken back");
                assert!(matches!(reader.join().unwrap(), None | Some(1)));
            });
        }
    }
}

//! Inputs and answers that are too large for a record: they travel in pieces.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpupool_protocol::image::MAX_IMAGE;
use gpupool_protocol::wire::codec::BadRecord;

use super::code::{Code, Fail};

/// Bytes that all unfinished or untaken inputs of a session may have together; the same for its answers.
const IN_FLIGHT_MAX: u64 = 2 * MAX_IMAGE;
/// Inputs that may be under way at the same time: one for each thread that loads something.
const PARCELS_MAX: usize = 1024;

/// The parcels of a session.
#[derive(Debug, Default)]
pub struct Parcels {
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

#[derive(Debug, Default)]
struct Incoming {
    parcels: HashMap<u64, Input>,
    bytes: u64,
}

#[derive(Debug)]
struct Input {
    total: u64,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Outgoing {
    parcels: HashMap<u64, Arc<[u8]>>,
    bytes: u64,
    last: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Parcels {
    /// Takes the next piece of an input. `copy` fills the room that is made for its `length` bytes.
    ///
    /// # Errors
    /// [`BadRecord`]: the piece is not the next one, or the parcel would be too large.
    pub fn put(
        &self,
        parcel: u64,
        offset: u64,
        total: u64,
        length: usize,
        copy: impl FnOnce(&mut [u8]) -> Result<(), Fail>,
    ) -> Result<(), Fail> {
        let bad = Fail::Bad(BadRecord::OutOfRange);
        let mut incoming = lock(&self.incoming);
        let Incoming { parcels, bytes } = &mut *incoming;
        if offset == 0 {
            let fine = total <= MAX_IMAGE && parcels.len() < PARCELS_MAX && !parcels.contains_key(&parcel);
            if !fine {
                return Err(bad);
            }
            parcels.insert(parcel, Input { total, bytes: Vec::new() });
        }
        let input = parcels.get_mut(&parcel).ok_or(bad)?;
        let at = input.bytes.len();
        let fits = (at as u64).checked_add(length as u64).is_some_and(|end| end <= input.total);
        if offset != at as u64 || total != input.total || !fits || *bytes + length as u64 > IN_FLIGHT_MAX {
            return Err(bad);
        }
        *bytes += length as u64;
        // Grows with what has come, not with what was announced.
        input.bytes.resize(at + length, 0);
        copy(&mut input.bytes[at..])
    }

    /// Takes a whole input.
    ///
    /// # Errors
    /// [`BadRecord`] if there is none of that name or it is not complete.
    pub fn take(&self, parcel: u64) -> Result<Vec<u8>, Fail> {
        let mut incoming = lock(&self.incoming);
        let input = incoming.parcels.remove(&parcel).ok_or(BadRecord::OutOfRange)?;
        incoming.bytes -= input.bytes.len() as u64;
        if input.bytes.len() as u64 == input.total {
            Ok(input.bytes)
        } else {
            Err(BadRecord::OutOfRange.into())
        }
    }

    /// Keeps an answer until it was fetched; its number and length.
    ///
    /// # Errors
    /// CUDA_ERROR_OUT_OF_MEMORY when too much waits to be fetched.
    pub fn keep(&self, bytes: Vec<u8>) -> Result<(u64, u64), Fail> {
        let mut outgoing = lock(&self.outgoing);
        let length = bytes.len() as u64;
        if outgoing.bytes + length > IN_FLIGHT_MAX || outgoing.parcels.len() >= PARCELS_MAX {
            return Err(Code::OUT_OF_MEMORY.into());
        }
        outgoing.bytes += length;
        outgoing.last += 1;
        let number = outgoing.last;
        outgoing.parcels.insert(number, bytes.into());
        Ok((number, length))
    }

    /// At most `most` bytes of an answer from `offset` on. The last piece ends the parcel.
    ///
    /// # Errors
    /// [`BadRecord`] for a parcel or offset that there is not.
    pub fn piece(&self, parcel: u64, offset: u64, most: usize) -> Result<Vec<u8>, Fail> {
        let mut outgoing = lock(&self.outgoing);
        let bytes = outgoing.parcels.get(&parcel).ok_or(BadRecord::OutOfRange)?;
        let rest =
            usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).ok_or(BadRecord::OutOfRange)?;
        let piece = rest[..rest.len().min(most)].to_vec();
        if piece.len() == rest.len() {
            let length = bytes.len() as u64;
            outgoing.parcels.remove(&parcel);
            outgoing.bytes -= length;
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(parcels: &Parcels, parcel: u64, offset: u64, total: u64, bytes: &[u8]) -> Result<(), Fail> {
        parcels.put(parcel, offset, total, bytes.len(), |to| {
            to.copy_from_slice(bytes);
            Ok(())
        })
    }

    #[test]
    fn pieces_in_order_make_a_parcel() {
        let parcels = Parcels::default();
        put(&parcels, 9, 0, 5, b"abc").unwrap();
        put(&parcels, 9, 3, 5, b"de").unwrap();
        assert_eq!(parcels.take(9).unwrap(), b"abcde");
        assert!(parcels.take(9).is_err());
        assert_eq!(lock(&parcels.incoming).bytes, 0);
    }

    #[test]
    fn lies_are_refused() {
        let parcels = Parcels::default();
        assert!(put(&parcels, 1, 0, MAX_IMAGE + 1, b"a").is_err());
        assert!(put(&parcels, 1, 1, 5, b"a").is_err(), "no first piece");
        put(&parcels, 1, 0, 5, b"abc").unwrap();
        assert!(put(&parcels, 1, 0, 5, b"abc").is_err(), "twice the first piece");
        assert!(put(&parcels, 1, 2, 5, b"d").is_err(), "an overlap");
        assert!(put(&parcels, 1, 3, 6, b"d").is_err(), "another total");
        assert!(put(&parcels, 1, 3, 5, b"def").is_err(), "beyond the total");
        assert!(put(&parcels, 1, u64::MAX, 5, b"d").is_err());
        assert!(parcels.take(1).is_err(), "incomplete");
        for parcel in 0..PARCELS_MAX as u64 {
            put(&parcels, parcel, 0, 1, b"").unwrap();
        }
        assert!(put(&parcels, u64::MAX, 0, 1, b"").is_err());
    }

    #[test]
    fn answers_are_fetched_in_pieces_and_then_gone() {
        let parcels = Parcels::default();
        let (number, length) = parcels.keep(b"abcde".to_vec()).unwrap();
        assert_eq!(length, 5);
        assert_eq!(parcels.piece(number, 0, 3).unwrap(), b"abc");
        assert!(parcels.piece(number, 6, 3).is_err());
        assert_eq!(parcels.piece(number, 3, 3).unwrap(), b"de");
        assert!(parcels.piece(number, 0, 3).is_err());
        assert_eq!(lock(&parcels.outgoing).bytes, 0);
    }
}

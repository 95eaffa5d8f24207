//! Free ranges of addresses, and pieces that are taken out of them and given back.

use std::collections::{BTreeMap, BTreeSet};

/// The free ranges. Two that touch are one.
#[derive(Debug, Default)]
pub struct Ranges {
    /// Lengths by first address.
    by_address: BTreeMap<u64, u64>,
    /// The same as (length, first address), so that the smallest range that fits is found at once.
    by_length: BTreeSet<(u64, u64)>,
    total: u64,
}

impl Ranges {
    /// Takes the first `bytes` of the smallest range that has so many.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let &(length, address) = self.by_length.range((bytes, 0)..).next()?;
        self.remove(address, length);
        if length > bytes {
            self.insert(address + bytes, length - bytes);
        }
        Some(address)
    }

    /// Gives a range back. None of it may be free already.
    pub fn give(&mut self, address: u64, bytes: u64) {
        let (mut first, mut length) = (address, bytes);
        if let Some((&before, &len)) = self.by_address.range(..address).next_back()
            && before + len == address
        {
            self.remove(before, len);
            (first, length) = (before, length + len);
        }
        if let Some(&len) = self.by_address.get(&(address + bytes)) {
            self.remove(address + bytes, len);
            length += len;
        }
        self.insert(first, length);
    }

    /// Takes a part that is known to be free as a whole.
    pub fn take_this(&mut self, address: u64, bytes: u64) {
        let Some((&first, &length)) = self.by_address.range(..=address).next_back() else { return };
        let (before, end) = (address - first, first + length);
        assert!(before + bytes <= length, "{bytes} bytes at {address:#x} are not free");
        self.remove(first, length);
        if before > 0 {
            self.insert(first, before);
        }
        if address + bytes < end {
            self.insert(address + bytes, end - address - bytes);
        }
    }

    /// First addresses and lengths, by address, of those that end above `from`.
    pub fn all_from(&self, from: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before =
            self.by_address.range(..from).next_back().filter(|(first, length)| *first + *length > from);
        let range = before.into_iter().chain(self.by_address.range(from..));
        range.map(|(address, length)| (*address, *length))
    }

    /// Bytes that are free.
    pub fn total(&self) -> u64 {
        self.total
    }

    fn insert(&mut self, address: u64, length: u64) {
        self.by_address.insert(address, length);
        self.by_length.insert((length, address));
        self.total += length;
    }

    fn remove(&mut self, address: u64, length: u64) {
        self.by_address.remove(&address);
        self.by_length.remove(&(length, address));
        self.total -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of the model's memory, each free or not.
    const BYTES: usize = 64;

    /// The longest runs of free bytes in the model.
    fn runs(free: &[bool]) -> Vec<usize> {
        free.split(|free| !free).map(<[bool]>::len).filter(|len| *len > 0).collect()
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_map_of_single_bytes(steps in prop::collection::vec((1u64..20, any::<prop::sample::Index>()), 1..200)) {
            let mut ranges = Ranges::default();
            ranges.give(0, BYTES as u64);
            let (mut free, mut taken) = ([true; BYTES], Vec::new());
            for (bytes, which) in steps {
                let fits = runs(&free).into_iter().filter(|len| *len >= bytes as usize).min();
                match ranges.take(bytes) {
                    Some(at) => {
                        let piece = &mut free[at as usize..][..bytes as usize];
                        prop_assert!(piece.iter().all(|free| *free), "{at} was not free");
                        prop_assert!(fits.is_some());
                        piece.fill(false);
                        taken.push((at, bytes));
                    }
                    None => {
                        prop_assert_eq!(fits, None, "{} bytes would have fitted", bytes);
                        if !taken.is_empty() {
                            let (at, bytes) = taken.swap_remove(which.index(taken.len()));
                            ranges.give(at, bytes);
                            free[at as usize..][..bytes as usize].fill(true);
                        }
                    }
                }
                prop_assert_eq!(ranges.total(), free.iter().filter(|free| **free).count() as u64);
                let mut lengths = runs(&free);
                lengths.sort_unstable();
                let ours: Vec<_> = ranges.by_length.iter().map(|(length, _)| *length as usize).collect();
                prop_assert_eq!(ours, lengths, "ranges that touch are one");
            }
        }
    }
}

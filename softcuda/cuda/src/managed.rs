//! Managed memory: one memory for the host and all devices, under one address. Nothing moves; advice and prefetches are
//! kept, range by range, and told when asked for.
#![forbid(unsafe_code)]

use crate::allocations::{Allocation, What};
use crate::context;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::stream::Work;
use crate::{current, memory};
use softcuda_engine::Access;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where managed memory may be: a device, or (a node of) the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// A device, by ordinal.
    Device(i32),
    /// The host.
    Host,
    /// A NUMA node of the host.
    Node(i32),
    /// The NUMA node of the calling thread.
    NearestNode,
}

impl Site {
    /// What the older calls give: an ordinal, or -1 for the host.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE`.
    pub fn of_ordinal(device: i32) -> Result<Site> {
        if device == -1 { Ok(Site::Host) } else { driver::device(device).map(|_| Site::Device(device)) }
    }

    /// What the newer calls give: `CUmemLocation`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE`; `CUDA_ERROR_INVALID_VALUE` for a kind that is none.
    pub fn of_location(kind: u32, id: i32) -> Result<Site> {
        match kind {
            1 => driver::device(id).map(|_| Site::Device(id)),
            2 => Ok(Site::Host),
            3 if id >= 0 => Ok(Site::Node(id)),
            4 => Ok(Site::NearestNode),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// As the older questions are answered.
    fn ordinal(site: Option<Site>) -> i32 {
        match site {
            Some(Site::Device(id)) => id,
            Some(_) => CPU,
            None => NOWHERE,
        }
    }

    /// As the newer questions are answered: kind and id.
    fn location(site: Option<Site>) -> (i32, i32) {
        match site {
            Some(Site::Device(id)) => (1, id),
            Some(Site::Host) => (2, 0),
            Some(Site::Node(id)) => (3, id),
            Some(Site::NearestNode) => (4, 0),
            None => (0, NOWHERE),
        }
    }
}

/// `CU_DEVICE_CPU`
const CPU: i32 = -1;
/// `CU_DEVICE_INVALID`
const NOWHERE: i32 = -2;

/// `CUmem_advise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// `CU_MEM_ADVISE_SET_READ_MOSTLY` and `_UNSET_`.
    ReadMostly(bool),
    /// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`; none for `_UNSET_`.
    Prefer(Option<Site>),
    /// `CU_MEM_ADVISE_SET_ACCESSED_BY` and `_UNSET_`.
    AccessedBy(Site, bool),
}

impl Advice {
    /// The advice of a number; `site` is only looked at where the advice names one.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a number that is none, and what `site` says.
    pub fn new(number: u32, site: impl FnOnce() -> Result<Site>) -> Result<Advice> {
        Ok(match number {
            1 | 2 => Advice::ReadMostly(number == 1),
            3 => Advice::Prefer(Some(site()?)),
            4 => Advice::Prefer(None),
            5 | 6 => match site()? {
                site @ (Site::Device(_) | Site::Host) => Advice::AccessedBy(site, number == 5),
                // The manual wants a device or the host here.
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            },
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }
}

/// What is known of a piece of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Hints {
    read_mostly: bool,
    preferred: Option<Site>,
    accessed_by: BTreeSet<Site>,
    prefetched: Option<Site>,
}

/// Pieces of managed memory, by first address: their ends and hints. What is not here has none.
type Pieces = BTreeMap<u64, (u64, Hints)>;

static PIECES: Mutex<Pieces> = Mutex::new(BTreeMap::new());

fn lock() -> MutexGuard<'static, Pieces> {
    PIECES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes `at` a border between pieces.
fn cut(pieces: &mut Pieces, at: u64) {
    if let Some((_, piece)) = pieces.range_mut(..at).next_back()
        && piece.0 > at
    {
        let rest = (piece.0, piece.1.clone());
        piece.0 = at;
        pieces.insert(at, rest);
    }
}

fn change(address: u64, bytes: u64, edit: impl Fn(&mut Hints)) {
    let mut pieces = lock();
    let end = address + bytes;
    cut(&mut pieces, address);
    cut(&mut pieces, end);
    let known: Vec<(u64, u64)> = pieces.range(address..end).map(|(start, piece)| (*start, piece.0)).collect();
    let mut at = address;
    for (start, stop) in known.into_iter().chain([(end, end)]) {
        if at < start {
            pieces.insert(at, (start, Hints::default()));
        }
        at = stop;
    }
    pieces.range_mut(address..end).for_each(|(_, piece)| edit(&mut piece.1));
}

/// The hints of all parts of a range.
fn hints(address: u64, bytes: u64) -> Vec<Hints> {
    let pieces = lock();
    let (mut at, end) = (address, address + bytes);
    let mut found = Vec::new();
    let before = pieces.range(..=address).next_back().filter(|(_, piece)| piece.0 > address);
    for (start, (stop, hints)) in before.into_iter().chain(pieces.range(address + 1..end)) {
        if at < *start {
            found.push(Hints::default());
        }
        found.push(hints.clone());
        at = *stop;
    }
    if at < end {
        found.push(Hints::default());
    }
    found
}

/// `cuMemAllocManaged`: `flags` is 1 (any stream) or 2 (host first).
///
/// # Errors
/// As [`memory::alloc`]; `CUDA_ERROR_INVALID_VALUE` for other flags.
pub fn alloc(bytes: usize, flags: u32) -> Result<u64> {
    if !matches!(flags, 1 | 2) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let address = memory::take(bytes, What::Managed)?;
    let owner = current::healthy()?.device.ordinal;
    for device in driver::devices().iter().filter(|d| d.ordinal != owner) {
        device.memory.open_window(address, bytes as u64, Access::ReadWrite);
    }
    Ok(address)
}

/// What else goes when managed memory is freed.
pub fn forget(allocation: &Allocation) {
    for device in driver::devices().iter().filter(|d| d.ordinal != allocation.device.ordinal) {
        device.memory.close_window(allocation.base);
    }
    let mut pieces = lock();
    let gone: Vec<u64> =
        pieces.range(allocation.base..allocation.base + allocation.size).map(|(start, _)| *start).collect();
    gone.iter().for_each(|start| _ = pieces.remove(start));
}

/// That a range is managed memory.
fn check(address: u64, bytes: usize) -> Result {
    match TABLES.allocations.holding(address, bytes as u64) {
        Some(allocation) if allocation.what.is_managed() && bytes > 0 => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuMemAdvise`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` unless the range is managed memory.
pub fn advise(address: u64, bytes: usize, advice: Advice) -> Result {
    current::healthy()?;
    check(address, bytes)?;
    change(address, bytes as u64, |hints| match advice {
        Advice::ReadMostly(yes) => hints.read_mostly = yes,
        Advice::Prefer(site) => hints.preferred = site,
        Advice::AccessedBy(site, true) => _ = hints.accessed_by.insert(site),
        Advice::AccessedBy(site, false) => _ = hints.accessed_by.remove(&site),
    });
    Ok(())
}

/// `cuMemPrefetchAsync`: noted in stream order.
///
/// # Errors
/// As [`advise`]; no such stream.
pub fn prefetch(address: u64, bytes: usize, site: Site, stream: usize) -> Result {
    prefetch_all(vec![(address, bytes, Some(site))], stream)
}

/// `cuMemPrefetchBatchAsync` and the discarding of memory: ranges, and where they go; without a place their contents are
/// of no use any more and stay where they are, which the manual allows.
///
/// # Errors
/// As [`prefetch`]; nothing is noted then.
pub fn prefetch_all(ranges: Vec<(u64, usize, Option<Site>)>, stream: usize) -> Result {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    ranges.iter().try_for_each(|(address, bytes, _)| check(*address, *bytes))?;
    let note = move || {
        for (address, bytes, site) in ranges {
            change(address, bytes as u64, |hints| hints.prefetched = site.or(hints.prefetched));
        }
        Ok(())
    };
    context.submit(&stream, Work::Short(Box::new(note)))
}

/// `cuStreamAttachMemAsync`. Host and kernels may use all managed memory at the same time, so nothing is to be done.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for unknown flags, memory that is not managed or not all of an allocation, and one stream's
/// own when that is a default stream.
pub fn attach(address: u64, bytes: usize, flags: u32, stream: usize) -> Result {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    let single = match flags {
        1 | 2 => false,
        4 => true,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let allocation = TABLES.allocations.find(address).filter(|a| a.what.is_managed());
    let allocation = allocation.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let whole = bytes == 0 || (allocation.base == address && allocation.size == bytes as u64);
    if !whole || (single && stream.handle <= crate::stream::PER_THREAD) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    context.submit(&stream, Work::Short(Box::new(|| Ok(()))))
}

/// `cuMemRangeGetAttribute`: the numbers of an answer of `count` 4-byte numbers.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute, a size that is not the attribute's, and memory that is not
/// managed.
pub fn attribute(id: u32, count: usize, address: u64, bytes: usize) -> Result<Vec<i32>> {
    current::healthy()?;
    check(address, bytes)?;
    let hints = hints(address, bytes as u64);
    if count == 0 || (id != 3 && count != 1) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let same = |of: fn(&Hints) -> Option<Site>| {
        let first = hints.first().and_then(of);
        first.filter(|site| hints.iter().all(|h| of(h) == Some(*site)))
    };
    let (preferred, prefetched) = (same(|h| h.preferred), same(|h| h.prefetched));
    Ok(match id {
        1 => vec![i32::from(hints.iter().all(|h| h.read_mostly))],
        2 => vec![Site::ordinal(preferred)],
        3 => {
            let mut all = hints.iter().map(|h| h.accessed_by.clone());
            let first = all.next().unwrap_or_default();
            let common = all.fold(first, |a, b| &a & &b);
            let known = common.into_iter().map(|site| Site::ordinal(Some(site)));
            known.chain(std::iter::repeat(NOWHERE)).take(count).collect()
        }
        4 => vec![Site::ordinal(prefetched)],
        5 => vec![Site::location(preferred).0],
        6 => vec![Site::location(preferred).1],
        7 => vec![Site::location(prefetched).0],
        8 => vec![Site::location(prefetched).1],
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_kept_by_range() {
        // Addresses that no allocation has: the table is the process's.
        let base = 0x7000_0000_0000;
        change(base, 100, |h| h.read_mostly = true);
        change(base + 50, 100, |h| h.preferred = Some(Site::Host));
        let of = |from, bytes| {
            hints(base + from, bytes)
                .into_iter()
                .map(|h| (h.read_mostly, h.preferred.is_some()))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0, 150), [(true, false), (true, true), (false, true)]);
        assert_eq!(of(10, 20), [(true, false)]);
        assert_eq!(of(140, 20), [(false, true), (false, false)]);
        assert_eq!(of(200, 20), [(false, false)]);
        change(base + 120, 60, |h| h.read_mostly = true);
        assert_eq!(of(100, 80), [(false, true), (true, true), (true, false)]);
        lock().retain(|start, _| !(base..base + 1000).contains(start));
    }
}

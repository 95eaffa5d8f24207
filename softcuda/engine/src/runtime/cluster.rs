//! Thread-block clusters: whose shared memory is whose, and the barrier of all their threads.
//!
//! A 32-bit `.shared::cluster` address is an offset in a block's shared memory with that block's rank + 1 in its top 8 bits;
//! 0 there is the block's own, so that `.shared::cta` addresses are `.shared::cluster` ones, as the manual has it.

use super::block::yield_now;
use super::context::Thread;
use std::sync::{Arc, Mutex, PoisonError};

/// Blocks of a cluster at most: what CUDA allows with the non-portable sizes.
pub const MOST_BLOCKS: u32 = 16;
const RANK_SHIFT: u32 = 24;
const OFFSET: u32 = (1 << RANK_SHIFT) - 1;

/// The blocks of one cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Where the shared memory of each block begins, by rank.
    bases: Vec<u64>,
    barrier: Mutex<Barrier>,
}

#[derive(Debug)]
struct Barrier {
    /// Threads of all blocks that have not ended.
    alive: u32,
    arrived: u32,
    phase: u32,
}

impl Barrier {
    fn check(&mut self) {
        if self.arrived > 0 && self.arrived >= self.alive {
            self.arrived = 0;
            self.phase = self.phase.wrapping_add(1);
        }
    }
}

impl Cluster {
    /// Blocks with shared memory at `bases`, with `threads` threads each.
    pub fn new(bases: Vec<u64>, threads: u32) -> Cluster {
        let alive = threads * bases.len() as u32;
        Cluster { bases, barrier: Mutex::new(Barrier { alive, arrived: 0, phase: 0 }) }
    }

    fn barrier(&self) -> std::sync::MutexGuard<'_, Barrier> {
        self.barrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Threads have ended.
    pub fn ended(&self, count: u32) {
        let mut b = self.barrier();
        b.alive = b.alive.saturating_sub(count);
        b.check();
    }

    /// Threads arrive; the phase that they then wait for the end of.
    fn arrive(&self, threads: u32) -> u32 {
        let mut b = self.barrier();
        let phase = b.phase;
        b.arrived += threads;
        b.check();
        phase
    }

    fn phase(&self) -> u32 {
        self.barrier().phase
    }
}

/// A block as one of a cluster; one without others is alone.
#[derive(Debug, Default, Clone)]
pub struct Member {
    pub cluster: Option<Arc<Cluster>>,
    pub rank: u32,
    /// The block's own shared memory.
    pub base: u64,
    pub size: u64,
}

impl Member {
    fn base_of(&self, rank: u32) -> Option<u64> {
        match &self.cluster {
            Some(c) => c.bases.get(rank as usize).copied(),
            None => (rank == 0).then_some(self.base),
        }
    }

    /// Rank and offset of a generic address in the cluster's shared memory.
    pub fn window(&self, address: u64) -> Option<(u32, u32)> {
        let inside = |base: u64| {
            (base != 0 && address.wrapping_sub(base) < self.size).then(|| (address - base) as u32)
        };
        match &self.cluster {
            Some(c) => (0u32..).zip(&c.bases).find_map(|(r, b)| Some((r, inside(*b)?))),
            None => Some((0, inside(self.base)?)),
        }
    }

    /// `.shared::cluster` to generic; an address of no block gives one that no access passes. So does, for an access of
    /// `size` bytes, one that is not within a block's shared memory: what lies behind it is another's. A size of 0 is no
    /// access, and the address may be any that a program calculates with.
    pub fn to_generic(&self, address: u32, size: u32) -> u64 {
        let offset = u64::from(address & OFFSET);
        if size > 0 && offset + u64::from(size) > self.size {
            return 0;
        }
        match (address >> RANK_SHIFT).checked_sub(1) {
            None => self.base + offset,
            Some(rank) => self.base_of(rank).map_or(0, |b| b + offset),
        }
    }

    /// Generic to `.shared::cluster`.
    pub fn to_cluster(&self, address: u64) -> u32 {
        match self.window(address) {
            Some((rank, offset)) if rank != self.rank => (rank + 1) << RANK_SHIFT | offset,
            Some((_, offset)) => offset,
            None => u32::MAX,
        }
    }

    /// `mapa.shared::cluster`: the same place in block `rank`.
    pub fn map_shared(&self, address: u32, rank: u32) -> u32 {
        (rank.min(0xfe) + 1) << RANK_SHIFT | address & OFFSET
    }

    /// `mapa` of generic addresses.
    pub fn map_generic(&self, address: u64, rank: u32) -> u64 {
        match (self.window(address), self.base_of(rank)) {
            (Some((_, offset)), Some(base)) => base + u64::from(offset),
            _ => 0,
        }
    }

    /// `getctarank.shared::cluster`.
    pub fn rank_of_shared(&self, address: u32) -> u32 {
        (address >> RANK_SHIFT).checked_sub(1).unwrap_or(self.rank)
    }

    /// `getctarank` of generic addresses.
    pub fn rank_of_generic(&self, address: u64) -> u32 {
        self.window(address).map_or(self.rank, |(rank, _)| rank)
    }
}

/// The first thread of a group and their number; of a thread itself.
///
/// # Safety
/// `t` is a thread or group of a block that is being run.
unsafe fn members(t: *mut Thread) -> (*mut Thread, u32) {
    // SAFETY: as promised.
    unsafe {
        let first = (*t).first;
        if first.is_null() { (t, 1) } else { (first, (*(*(*t).block).rest).width()) }
    }
}

/// `barrier.cluster.arrive` and, with `wait` not 0, `barrier.cluster.wait`.
///
/// # Safety
/// `t` is the running thread, or group of lanes.
pub unsafe extern "C" fn barrier(t: *mut Thread, wait: u32) {
    // SAFETY: as promised. The cluster lives as long as the block; the reference is to what the `Arc` holds.
    unsafe {
        // A kernel with this barrier always has a cluster, if only of one block.
        let member = &(*(*t).block).member;
        let Some(cluster) = member.cluster.as_ref().map(Arc::as_ptr) else { return };
        // A group's lanes may part between the two: each of them knows in which phase it has arrived.
        let (first, lanes) = members(t);
        if wait == 0 {
            let phase = (*cluster).arrive(lanes);
            for l in 0..lanes as usize {
                (*first.add(l)).cluster_phase = phase;
            }
            return;
        }
        // Lanes that arrived apart did so in one phase all the same: none of them has waited since.
        while (*cluster).phase() == (*first).cluster_phase {
            yield_now(t);
        }
        (*(*(*t).block).rest).moved();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_there_and_back() {
        let cluster = Some(Arc::new(Cluster::new(vec![0x10_0000, 0x20_0000, 0x30_0000], 1)));
        let m = Member { cluster, rank: 1, base: 0x20_0000, size: 0x1000 };
        assert_eq!(m.to_generic(0x10, 0), 0x20_0010);
        let far = m.map_shared(0x10, 2);
        assert_eq!(m.to_generic(far, 4), 0x30_0010);
        assert_eq!(m.to_generic(m.map_shared(0xffc, 2), 4), 0x30_0ffc);
        assert_eq!(m.to_generic(m.map_shared(0xffc, 2), 8), 0, "beyond the block's shared memory");
        assert_eq!(m.to_generic(0x1000, 0), 0x20_1000, "the end is an address");
        assert_eq!(m.rank_of_shared(far), 2);
        assert_eq!(m.rank_of_shared(0x10), 1);
        assert_eq!(m.to_cluster(0x30_0010), far);
        assert_eq!(m.to_cluster(0x20_0010), 0x10);
        assert_eq!(m.map_generic(0x20_0020, 0), 0x10_0020);
        assert_eq!(m.rank_of_generic(0x10_0000), 0);
        assert_eq!(m.window(0x10_1000), None);
        assert_eq!(m.to_generic(m.map_shared(0, 9), 0), 0, "no such block");
    }

    #[test]
    fn threads_that_have_ended_are_not_waited_for() {
        let c = Cluster::new(vec![0, 0], 2);
        let first = c.arrive(1);
        c.arrive(1);
        assert_eq!(c.phase(), first);
        c.ended(2);
        assert_ne!(c.phase(), first);
    }
}

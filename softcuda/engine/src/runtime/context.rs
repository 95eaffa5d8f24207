//! What generated code is handed: plain structures whose field offsets it knows.

use std::sync::atomic::AtomicU32;

/// A compiled function: thread, its arguments, room for its results, its frame in local memory.
pub type Entry = unsafe extern "C" fn(*mut Thread, *const u8, *mut u8, u64);

/// One thread of a block. In a lane loop one of these stands for all threads in turn.
#[repr(C)]
pub struct Thread {
    pub block: *mut Block,
    pub tid: [u32; 3],
    /// x + y·X + z·X·Y.
    pub linear: u32,
    /// First byte behind this thread's local memory.
    pub local_end: u64,
    /// The same without what `alloca` has taken of it, from the end downwards.
    pub local_top: u64,
    /// The native stack must not grow below this.
    pub stack_limit: u64,
    /// Saved stack pointer while it does not run.
    pub sp: usize,
    /// First byte of this thread's local memory.
    pub local: u64,
    /// Of a group: its first lane. Lanes follow each other.
    pub first: *mut Thread,
    /// The frame of its group, with the registers of scalar code; 0 if there is none.
    pub spill: u64,
    /// Where scalar code begins and where it stops, as block numbers; see `codegen::clif::doors`.
    pub start: u32,
    pub until: u32,
    /// Scalar code has come to where it was to stop.
    pub joined: u32,
    /// Which fiber this is: see [`super::block::Rest::thread`].
    pub id: u32,
    /// What it waits with at a warp operation; see [`super::warp`].
    pub post: super::warp::Post,
    /// The phase of the cluster's barrier that it has arrived in.
    pub cluster_phase: u32,
}

/// What the threads of a block share, as far as generated code reads it.
#[repr(C)]
pub struct Block {
    /// One byte for each granule of the 47 bits of addresses; see [`crate::memory`].
    pub mem_table: u64,
    pub helpers: *const usize,
    /// See [`super::bell`].
    pub bell: *const AtomicU32,
    /// Entry points by number in [`crate::codegen::Unit::functions`].
    pub functions: *const usize,
    pub shared_base: u64,
    /// Bytes of shared memory / 1, 2, 4, 8, 16, 32: one more than the last aligned slot.
    pub shared_slots: [u64; 6],
    pub local_base: u64,
    pub local_size: u64,
    pub const_base: u64,
    pub const_size: u64,
    /// The kernel's parameters, which lie in a window of their own within the global one.
    pub params_base: u64,
    pub params_size: u64,
    pub ntid: [u32; 3],
    pub ctaid: [u32; 3],
    pub nctaid: [u32; 3],
    /// Which cluster, of how many; where in it, and its size.
    pub clusterid: [u32; 3],
    pub nclusterid: [u32; 3],
    pub cluster_ctaid: [u32; 3],
    pub cluster_nctaid: [u32; 3],
    pub cluster_ctarank: u32,
    pub cluster_nctarank: u32,
    /// The launch said that there are clusters.
    pub explicit_cluster: u32,
    pub threads: u32,
    pub dynamic_shared: u32,
    pub total_shared: u32,
    pub smid: u32,
    pub nsmid: u32,
    pub grid_id: u64,
    /// Address of the workspace of a cooperative grid, else 0.
    pub workspace: u64,
    /// Not read by generated code: the block's place in its cluster.
    pub member: super::cluster::Member,
    /// Not read by generated code: the rest of the block.
    pub rest: *mut super::block::Rest,
}

impl Block {
    /// Makes it block `ctaid` of its grid.
    pub fn place(&mut self, ctaid: [u32; 3]) {
        let size = self.cluster_nctaid;
        self.ctaid = ctaid;
        self.clusterid = std::array::from_fn(|i| ctaid[i] / size[i]);
        self.nclusterid = std::array::from_fn(|i| self.nctaid[i] / size[i]);
        let place: [u32; 3] = std::array::from_fn(|i| ctaid[i] % size[i]);
        self.cluster_ctaid = place;
        self.cluster_ctarank = place[0] + size[0] * (place[1] + size[1] * place[2]);
        self.cluster_nctarank = size.iter().product();
        self.member.rank = self.cluster_ctarank;
    }
}

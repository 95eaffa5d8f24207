//! Blocks with what they need to run: stacks, shared and local memory.

use super::Grid;
use super::pool::{Pool, lock};
use crate::error::{Fault, FaultKind};
use crate::runtime::block::{Running, fibers_of};
use crate::runtime::cluster::Member;
use crate::runtime::context::Block;
use crate::runtime::helpers;
use std::sync::Arc;

/// A block with its memory.
pub(super) struct Ready {
    pub(super) running: Running,
    scratch: Vec<(u64, u64)>,
}

impl Pool {
    /// A block of the grid with stacks and memory.
    pub(super) fn make(&self, grid: &Arc<Grid>) -> Result<Ready, Fault> {
        let none = |what: &str| {
            Fault::new(FaultKind::OutOfResources, format!("{}: no memory for {what}", grid.kernel.name))
        };
        let threads = grid.threads();
        let fibers = grid.fibers();
        let mode = grid.code.variant.mode;
        let places = if fibers || mode.groups() { u64::from(threads) } else { 1 };
        let stacks = fibers_of(grid.code.variant, threads);
        let mut scratch = Vec::new();
        let mut get = |size: u64| -> Option<u64> {
            if size == 0 {
                return Some(0);
            }
            let size = size.next_power_of_two().max(64 << 10);
            let addr = self.take_scratch(size)?;
            scratch.push((size, addr));
            Some(addr)
        };
        let local_size = u64::from(grid.local) * places;
        let slack = u64::from(grid.kernel.reach.slack);
        let (shared, local) = (get(u64::from(grid.total_shared)), get(local_size + slack));
        let (Some(shared), Some(local)) = (shared, local) else {
            self.give_scratch(scratch);
            return Err(none("shared or local memory"));
        };
        let stacks = match self.stacks.take(stacks as usize, grid.stack) {
            Ok(s) => s,
            Err(_) => {
                self.give_scratch(scratch);
                return Err(none("stacks"));
            }
        };
        let total = u64::from(grid.total_shared);
        let context = Box::new(Block {
            mem_table: grid.table(),
            helpers: helpers::table(),
            bell: self.bell(),
            functions: grid.code.entries.as_ptr().cast(),
            shared_base: shared,
            shared_slots: std::array::from_fn(|k| total >> k),
            local_base: local,
            local_size,
            const_base: grid.kernel.placed.const_base,
            const_size: grid.kernel.placed.const_size,
            params_base: grid.params.as_ptr() as u64,
            params_size: grid.kernel.param_bytes().into(),
            ntid: grid.block,
            ctaid: [0; 3],
            nctaid: grid.dims,
            clusterid: [0; 3],
            nclusterid: [1; 3],
            cluster_ctaid: [0; 3],
            cluster_nctaid: grid.cluster,
            cluster_ctarank: 0,
            cluster_nctarank: 1,
            explicit_cluster: grid.explicit_cluster.into(),
            threads,
            dynamic_shared: grid.dynamic_shared,
            total_shared: grid.total_shared,
            smid: 0,
            nsmid: self.workers() as u32,
            grid_id: grid.id,
            workspace: grid.workspace,
            member: Member { cluster: None, rank: 0, base: shared, size: total },
            rest: std::ptr::null_mut(),
        });
        let running = Running::new(context, grid.clone(), stacks, u64::from(grid.local));
        Ok(Ready { running, scratch })
    }

    fn take_scratch(&self, size: u64) -> Option<u64> {
        if let Some(a) = lock(&self.scratch).get_mut(&size).and_then(Vec::pop) {
            return Some(a);
        }
        self.memory.alloc_scratch(size).ok()
    }

    fn give_scratch(&self, all: Vec<(u64, u64)>) {
        let mut free = lock(&self.scratch);
        for (size, addr) in all {
            free.entry(size).or_default().push(addr);
        }
    }

    pub(super) fn recycle(&self, r: Ready) {
        self.stacks.give(r.running.into_stacks());
        self.give_scratch(r.scratch);
    }
}

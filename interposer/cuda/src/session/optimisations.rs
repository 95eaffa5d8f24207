//! Optimisations that `GPUPOOL_DISABLE` can switch off, by name. Programs must behave the same without them.

use gpupool_protocol::config::ClientConfig;

use crate::log::say;

/// Which of them are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Optimisations {
    /// `board`: queries of events and streams read the completion board. Without it each asks the worker.
    pub board: bool,
    /// `local_sync`: what was synchronised and has no new work needs no second wait. Without it every synchronise waits.
    pub local_sync: bool,
    /// `posted_copies`: a synchronous copy from pageable memory returns when its bytes are taken. Without it when it is
    /// done.
    pub posted_copies: bool,
    /// `host_arena`: on one host pinned memory is shared with the worker, which copies from and to it directly. Without it
    /// pinned memory is private and its bytes are staged, as over a network.
    pub host_arena: bool,
    /// `post_alloc`: cuMemAlloc is answered from memory that the worker has put aside for this session, at addresses that this
    /// library chooses. Without it every allocation asks the driver.
    pub post_alloc: bool,
    /// `direct_receive`: over a network the bytes of a copy from the device are received where the program wants them. Without
    /// it they are received into a staging chunk and copied from there.
    pub direct_receive: bool,
    /// `recent_ranges`: the ranges of device memory that calls have touched lately are found without a lock. Without it each
    /// call looks for its range in the list of all.
    pub recent_ranges: bool,
    /// `landings`: over a network an asynchronous copy to pinned memory returns at once, and its bytes come when the worker
    /// has them. Without it when they have come.
    pub landings: bool,
    /// `credit`: memory for later allocations is put aside with earlier ones, and kept when it is freed. Without it each large
    /// allocation has memory of its own, which goes back when it is freed.
    pub credit: bool,
    /// `revoke`: memory that this session holds unused goes back when another finds none, and the other way round.
    pub revoke: bool,
}

const NAMES: [&str; 10] = [
    "board",
    "local_sync",
    "posted_copies",
    "host_arena",
    "post_alloc",
    "direct_receive",
    "recent_ranges",
    "landings",
    "credit",
    "revoke",
];

impl Optimisations {
    /// What a configuration leaves on.
    pub fn of(config: &ClientConfig) -> Self {
        for name in config.disable.iter().filter(|name| !NAMES.contains(&name.as_str())) {
            say!(Warn, "GPUPOOL_DISABLE: there is no optimisation `{name}`; they are {}", NAMES.join(", "));
        }
        let [
            board,
            local_sync,
            posted_copies,
            host_arena,
            post_alloc,
            direct_receive,
            recent_ranges,
            landings,
            credit,
            revoke,
        ] = NAMES.map(|name| !config.disabled(name));
        Self {
            board,
            local_sync,
            posted_copies,
            host_arena,
            post_alloc,
            direct_receive,
            recent_ranges,
            landings,
            credit,
            revoke,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_switched_off_by_its_name() {
        let of = |names: &[&str]| {
            let disable = names.iter().map(|name| (*name).to_owned()).collect();
            Optimisations::of(&ClientConfig { disable, ..ClientConfig::default() })
        };
        let all = Optimisations {
            board: true,
            local_sync: true,
            posted_copies: true,
            host_arena: true,
            post_alloc: true,
            direct_receive: true,
            recent_ranges: true,
            landings: true,
            credit: true,
            revoke: true,
        };
        assert_eq!(of(&[]), all);
        assert!(!of(&["board"]).board && of(&["board"]).local_sync);
        assert!(!of(&["other", "local_sync"]).local_sync);
        assert!(!of(&NAMES).posted_copies && !of(&NAMES).host_arena && !of(&NAMES).post_alloc);
        assert!(!of(&["recent_ranges"]).recent_ranges && of(&["recent_ranges"]).board);
        assert!(!of(&["direct_receive"]).direct_receive && of(&["direct_receive"]).post_alloc);
    }
}

//! Two processes have the memory of one device between them.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::peer::{Peer, in_peer, tell, told};
use api::*;
use std::process::Stdio;

const MIB: usize = 1 << 20;

fn free_bytes() -> usize {
    let mut free = 0;
    ok!(cuMemGetInfo_v2(&mut free, &mut 0));
    free
}

fn other_process() {
    let _context = context();
    alloc(40 * MIB);
    tell("has 40");
    assert_eq!(told(), "more");
    // The first process has the rest by now, down to the last byte.
    assert_eq!(cu!(cuMemAlloc_v2(&mut 0, 1)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(free_bytes(), 0);
    tell("has no more");
    told();
    unreachable!("it is killed");
}

#[test]
fn memory_is_one_budget_and_a_killed_process_gives_its_share_back_at_once() {
    const NAME: &str = "memory_is_one_budget_and_a_killed_process_gives_its_share_back_at_once";
    if in_peer() {
        return other_process();
    }
    let state = std::env::temp_dir().join(format!("softcuda-shared-budget-{}", std::process::id()));
    let state_text = state.to_str().expect("text");
    in_child(NAME, &[("SOFTCUDA_MEMORY", "64M"), (SHARED_STATE, state_text)], Stdio::null(), || {
        let _context = context();
        let all = free_bytes();
        let mut other = Peer::start(NAME, &[]);
        other.expect("has 40");
        assert_eq!(free_bytes(), all - 40 * MIB);
        assert_eq!(cu!(cuMemAlloc_v2(&mut 0, free_bytes() + 1)), CUDA_ERROR_OUT_OF_MEMORY);
        let rest = alloc(free_bytes());
        assert_eq!(free_bytes(), 0);
        other.say("more");
        other.expect("has no more");
        other.kill();
        // No question before it: who wants memory finds what the dead process had.
        let its = alloc(40 * MIB);
        assert_eq!(cu!(cuMemAlloc_v2(&mut 0, 1)), CUDA_ERROR_OUT_OF_MEMORY);
        ok!(cuMemFree_v2(its));
        ok!(cuMemFree_v2(rest));
        assert_eq!(free_bytes(), all);
    });
    if std::env::var_os("SOFTCUDA_TEST_CHILD").is_none() {
        let _ = std::fs::remove_dir_all(state);
    }
}

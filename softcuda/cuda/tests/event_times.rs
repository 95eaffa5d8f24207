//! What is ordered has times in that order: events that follow each other in a stream, behind a wait for an event, or by
//! the rules of the default stream, whichever threads ask and whatever else goes on.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;

const THREADS: u32 = 4;
const ROUNDS: u32 = 300;
/// Events of a round, each ordered behind the one before it.
const CHAIN: usize = 6;
const LEGACY: H = 1;
const PER_THREAD: H = 2;

/// Work of some microseconds.
extern "C" fn spin(turns: *mut c_void) {
    for _ in 0..turns.addr() {
        std::hint::spin_loop();
    }
}

/// xorshift64*, of a seed that is not 0.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// A stream, and whether the legacy one orders itself with it.
#[derive(Clone, Copy, PartialEq)]
struct Lane {
    stream: H,
    blocking: bool,
}

/// Whether work of the second comes after earlier work of the first without being told.
fn is_ordered(first: Lane, second: Lane) -> bool {
    let joined = |a: Lane, b: Lane| a.stream == LEGACY && b.blocking;
    first == second || joined(first, second) || joined(second, first)
}

fn some_work(random: &mut Random, lane: Lane, memory: u64) {
    match random.below(6) {
        // What a thread does itself keeps others from asking.
        0 | 1 => ok!(cuMemsetD8Async(memory, 1, 64 << 10, lane.stream)),
        2 => ok!(cuMemsetD8Async(memory, 2, 256 << 10, lane.stream)),
        3 => ok!(cuLaunchHostFunc(lane.stream, spin, std::ptr::without_provenance_mut(random.below(300)))),
        _ => {}
    }
}

fn rounds(seed: u64) {
    let mut random = Random(seed);
    let blocking = |stream| Lane { stream, blocking: true };
    let lanes = [
        blocking(LEGACY),
        blocking(PER_THREAD),
        blocking(stream(0)),
        blocking(stream(0)),
        Lane { stream: stream(1), blocking: false },
    ];
    let events: [H; CHAIN] = std::array::from_fn(|_| event(0));
    let memory = alloc(256 << 10);
    for round in 0..ROUNDS {
        let chain: [Lane; CHAIN] = std::array::from_fn(|_| lanes[random.below(lanes.len())]);
        for place in 0..CHAIN {
            let lane = chain[place];
            if place > 0 && !is_ordered(chain[place - 1], lane) {
                ok!(cuStreamWaitEvent(lane.stream, events[place - 1], 0));
            }
            some_work(&mut random, lane, memory);
            ok!(cuEventRecord(events[place], lane.stream));
        }
        ok!(cuEventSynchronize(events[CHAIN - 1]));
        for place in 1..CHAIN {
            let mut milliseconds = -1.0;
            ok!(cuEventElapsedTime_v2(&mut milliseconds, events[place - 1], events[place]));
            let streams = [chain[place - 1].stream, chain[place].stream];
            assert!(
                milliseconds >= 0.0,
                "round {round}: {milliseconds} ms between {place} and before, {streams:x?}"
            );
        }
    }
}

#[test]
fn of_ordered_events_follow_each_other() {
    let context = context();
    let current = context.0;
    std::thread::scope(|scope| {
        for thread in 1..=u64::from(THREADS) {
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(current));
                rounds(thread);
            });
        }
    });
}

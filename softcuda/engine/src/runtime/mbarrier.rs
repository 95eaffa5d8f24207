//! `mbarrier` objects: 64 bits in shared memory, opaque to programs.
//!
//! From the lowest bit: 20 bits of arrivals that are still expected in this phase, 20 bits of arrivals that each phase
//! expects, 22 bits of transactions that are still expected (signed), and the phase's parity on top.

use std::sync::atomic::{AtomicU64, Ordering};

const COUNT: u64 = (1 << 20) - 1;
const EXPECTED_AT: u32 = 20;
const TX_AT: u32 = 40;
const TX: u64 = (1 << 22) - 1;
const PHASE_AT: u32 = 63;

/// What an arrival brings; the detail of [`crate::ir::MemoryFn::MbarrierArrive`].
pub const ARRIVE_DROP: u32 = 1;
/// The second operand is a number of transactions to expect before the arrival.
pub const ARRIVE_EXPECTS: u32 = 2;
/// The test's detail: the operand is a parity, not a state.
pub const TEST_PARITY: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    pending: u64,
    expected: u64,
    tx: i64,
    phase: u64,
}

impl State {
    fn unpack(v: u64) -> State {
        State {
            pending: v & COUNT,
            expected: v >> EXPECTED_AT & COUNT,
            tx: ((v >> TX_AT & TX) << 42) as i64 >> 42,
            phase: v >> PHASE_AT,
        }
    }

    fn pack(self) -> u64 {
        self.pending & COUNT
            | (self.expected & COUNT) << EXPECTED_AT
            | (self.tx as u64 & TX) << TX_AT
            | self.phase << PHASE_AT
    }

    /// The phase is over when nothing is expected any more.
    fn settle(mut self) -> State {
        if self.pending == 0 && self.tx == 0 {
            self.phase ^= 1;
            self.pending = self.expected;
        }
        self
    }
}

fn update(at: &AtomicU64, f: impl Fn(State) -> State) -> u64 {
    let change = |v| Some(f(State::unpack(v)).pack());
    at.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).unwrap_or_default()
}

/// `mbarrier.init`.
pub fn init(at: &AtomicU64, count: u32) {
    let count = u64::from(count) & COUNT;
    at.store(State { pending: count, expected: count, tx: 0, phase: 0 }.pack(), Ordering::Release);
}

/// `mbarrier.expect_tx`.
pub fn expect(at: &AtomicU64, tx: u32) {
    update(at, |s| State { tx: s.tx + i64::from(tx), ..s });
}

/// `mbarrier.complete_tx`.
pub fn complete(at: &AtomicU64, tx: u32) {
    update(at, |s| State { tx: s.tx - i64::from(tx), ..s }.settle());
}

/// `mbarrier.arrive` and `arrive_drop`, with `count` arrivals; the state before it.
pub fn arrive(at: &AtomicU64, count: u32, tx: u32, drop: bool) -> u64 {
    update(at, |s| {
        let count = u64::from(count);
        let expected = if drop { s.expected.saturating_sub(count) } else { s.expected };
        let s = State { tx: s.tx + i64::from(tx), pending: s.pending.saturating_sub(count), expected, ..s };
        s.settle()
    })
}

/// `mbarrier.test_wait`: whether the phase of `state`, or the one with `parity`, is over.
pub fn test(at: &AtomicU64, state: u64, parity: bool) -> bool {
    let wanted = if parity { state & 1 } else { state >> PHASE_AT };
    at.load(Ordering::Acquire) >> PHASE_AT != wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_with_the_last_arrival() {
        let b = AtomicU64::new(0);
        init(&b, 3);
        let first = arrive(&b, 1, 0, false);
        assert!(!test(&b, first, false));
        assert!(!test(&b, 0, true));
        assert!(test(&b, 1, true), "the phase before the first counts as over");
        arrive(&b, 2, 0, false);
        assert!(test(&b, first, false) && test(&b, 0, true) && !test(&b, 1, true));
        assert_eq!(first & COUNT, 3);
    }

    #[test]
    fn transactions_hold_a_phase_open() {
        let b = AtomicU64::new(0);
        init(&b, 1);
        let s = arrive(&b, 1, 64, false);
        assert!(!test(&b, s, false));
        complete(&b, 32);
        assert!(!test(&b, s, false));
        complete(&b, 32);
        assert!(test(&b, s, false));
        // They may also complete before they are expected.
        complete(&b, 8);
        expect(&b, 8);
        assert_eq!(
            State::unpack(b.load(Ordering::Relaxed)),
            State { pending: 1, expected: 1, tx: 0, phase: 1 }
        );
    }

    #[test]
    fn who_drops_out_is_not_expected_again() {
        let b = AtomicU64::new(0);
        init(&b, 2);
        arrive(&b, 1, 0, true);
        arrive(&b, 1, 0, false);
        assert!(test(&b, 0, true));
        arrive(&b, 1, 0, false);
        assert!(test(&b, 1, true), "one arrival ends the second phase");
    }
}

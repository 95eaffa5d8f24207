//! Blocks that take turns on one worker, so that they go through memory together.
#![forbid(unsafe_code)]

use super::Grid;
use super::gate::Pass;
use super::pool::Pool;
use super::ready::Ready;
use crate::runtime::block::Outcome;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Blocks that take turns on one worker at most.
pub(super) const SIDE_BY_SIDE: u64 = 32;
/// Rounds of a block before it takes turns with others.
const ALONE: u32 = 4;

impl Pool {
    /// Runs blocks whose loops have stops side by side, a round of each at a time, so that they go through memory together.
    pub(super) fn take_turns(
        &self,
        grid: &Arc<Grid>,
        mut blocks: std::ops::Range<u64>,
        number: u32,
        pass: &mut Pass,
    ) {
        let (mut free, mut standing): (Vec<Ready>, Vec<Ready>) = (Vec::new(), Vec::new());
        while grid.stop.load(Ordering::Relaxed) == 0 && !(blocks.is_empty() && standing.is_empty()) {
            for mut r in std::mem::take(&mut standing) {
                pass.renew();
                let outcome = r.running.turn(number);
                self.after_turn(grid, r, outcome, &mut standing, &mut free);
            }
            for b in blocks.by_ref() {
                let mut r = match free.pop().map_or_else(|| self.make(grid), Ok) {
                    Ok(r) => r,
                    Err(f) => {
                        self.stop_grid(grid, f);
                        break;
                    }
                };
                pass.renew();
                r.running.begin(grid.ctaid(b));
                // Alone at first: a block that ends soon needs nobody beside it.
                let mut outcome = Outcome::Stands;
                for _ in 0..ALONE {
                    if outcome == Outcome::Stands {
                        outcome = r.running.turn(number);
                    }
                }
                self.after_turn(grid, r, outcome, &mut standing, &mut free);
                if grid.stop.load(Ordering::Relaxed) != 0 {
                    break;
                }
            }
        }
        free.into_iter().chain(standing).for_each(|r| self.recycle(r));
    }

    fn after_turn(
        &self,
        grid: &Grid,
        r: Ready,
        outcome: Outcome,
        standing: &mut Vec<Ready>,
        free: &mut Vec<Ready>,
    ) {
        match outcome {
            Outcome::Stands => standing.push(r),
            Outcome::Failed => self.failed(grid, r),
            // Nobody waits in such a kernel.
            Outcome::Done | Outcome::Parked => free.push(r),
        }
    }
}

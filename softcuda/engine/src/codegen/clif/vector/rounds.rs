//! Kernels without waiting whose threads go through memory in a loop ("grid-stride"): if one group of lanes ran to its end
//! before the next one began, each would touch a little of many pages. So a group stands still on the way back of such a
//! loop, the other groups of the block, and of other blocks, take their turn, and then all go on: what lies side by side is
//! touched one after the other. A call of the code runs one group to its next stop, as in [`super::segments`].

use super::plan::push;
use super::room::{self, Stop};
use super::shape::{Setting, Shape, Shapes};
use crate::ir::flow::{Flow, Loop, loops};
use crate::ir::{BlockId, Function, Op, Space, Term};

/// Threads of the largest block.
const MOST_THREADS: u32 = 1024;
/// The largest room for what all groups of a block keep while they stand.
const ROOM: u32 = 32 << 10;
/// Puts a block on the way back of each loop that stores to memory which others see, and is neither in another one nor has one inside.
pub fn cut(f: &mut Function, leave: &mut Vec<bool>) -> Vec<Stop> {
    let all = loops(f);
    let alone = |l: &&Loop| {
        let apart = |o: &Loop| o.head == l.head || !(o.body.contains(&l.head) || l.body.contains(&o.head));
        all.iter().all(apart) && stores(f, &l.body)
    };
    let mut stops = Vec::new();
    for l in all.iter().filter(alone).cloned().collect::<Vec<_>>() {
        for from in l.back {
            let targets: Vec<&mut BlockId> = match &mut f.blocks[from as usize].term {
                Term::Jump(t) => vec![t],
                Term::Branch { then, other, .. } => vec![then, other],
                // Groups go on without a stop there.
                _ => continue,
            };
            let way = leave.len() as BlockId;
            targets.into_iter().filter(|t| **t == l.head).for_each(|t| *t = way);
            push(f, Vec::new(), Term::Jump(l.head));
            leave.push(false);
            stops.push(Stop { way, head: l.head, body: l.body.clone() });
        }
    }
    stops
}

fn outside(space: Space) -> bool {
    matches!(space, Space::Global | Space::Generic)
}

fn stores(f: &Function, body: &[BlockId]) -> bool {
    let mut insts = body.iter().flat_map(|b| &f.blocks[*b as usize].insts);
    insts.any(|i| matches!(&i.op, Op::St { addr, .. } if outside(addr.space)))
}

/// The stops that are worth it: all that the loop moves lies side by side over the lanes, and there is room for the registers.
pub fn worthwhile(
    stops: Vec<Stop>,
    f: &Function,
    flow: &Flow,
    setting: Setting,
    regs: &[Shape],
) -> Vec<Stop> {
    let shapes = Shapes { f, setting, regs };
    let streams = |s: &Stop| {
        let ops = || s.body.iter().flat_map(|b| &f.blocks[*b as usize].insts).map(|i| &i.op);
        let dense = |addr, bytes: usize| shapes.address(addr) == Shape::Affine(bytes as i64);
        ops().all(|op| match op {
            Op::Ld { ty, d, addr, .. } if outside(addr.space) => {
                shapes.address(addr).uniform() || dense(addr, ty.bytes() as usize * d.len())
            }
            Op::St { ty, a, addr, .. } if outside(addr.space) => dense(addr, ty.bytes() as usize * a.len()),
            Op::Call { .. } => false,
            _ => true,
        })
    };
    let groups = MOST_THREADS / setting.width;
    let fits = |s: &Stop| room::bytes(f, setting, regs, flow.live[s.head as usize].iter()) * groups <= ROOM;
    stops.into_iter().filter(|s| streams(s) && fits(s)).collect()
}

//! The dominator tree: which blocks every way to a block goes through.

use super::super::passes::successors;
use super::super::{BlockId, Function};

/// Steps up the tree, for each block.
const STEPS: usize = 2000;

/// The tree; blocks that are not reached are not in it.
pub struct Dominators {
    children: Vec<Vec<usize>>,
}

impl Dominators {
    /// By the method of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm"). It is quick on what compilers
    /// write and quadratic on what a hostile text may hold; so when it takes long, all that is said is that the
    /// entry is above everything, which is true.
    pub fn new(f: &Function) -> Dominators {
        let order = reverse_postorder(f);
        let mut number = vec![usize::MAX; f.blocks.len()];
        for (i, b) in order.iter().enumerate() {
            number[*b] = i;
        }
        let mut before = vec![Vec::new(); order.len()];
        for (i, b) in order.iter().enumerate() {
            for s in successors(f, *b as BlockId) {
                before[number[s as usize]].push(i);
            }
        }
        // In numbers of the order; the entry's is its own.
        let mut above = vec![usize::MAX; order.len()];
        above[0] = 0;
        let mut changed = true;
        let mut steps = order.len().saturating_mul(STEPS);
        while changed && steps > 0 {
            changed = false;
            for i in 1..order.len() {
                let known = before[i].iter().copied().filter(|p| above[*p] != usize::MAX);
                let Some(new) = known.reduce(|a, b| meet(&above, a, b, &mut steps)) else { continue };
                changed |= std::mem::replace(&mut above[i], new) != new;
            }
        }
        if steps == 0 {
            above.fill(0);
        }
        let mut children = vec![Vec::new(); f.blocks.len()];
        for i in 1..order.len() {
            children[order[above[i]]].push(order[i]);
        }
        Dominators { children }
    }

    /// The blocks right below a block.
    pub fn children(&self, b: usize) -> &[usize] {
        &self.children[b]
    }
}

/// The lowest block above two, or anything once there are no steps left.
fn meet(above: &[usize], mut a: usize, mut b: usize, steps: &mut usize) -> usize {
    while a != b && *steps > 0 {
        *steps -= 1;
        if a > b { a = above[a] } else { b = above[b] }
    }
    a
}

fn reverse_postorder(f: &Function) -> Vec<usize> {
    let mut seen = vec![false; f.blocks.len()];
    let mut order = Vec::with_capacity(f.blocks.len());
    let mut open = vec![(0, successors(f, 0))];
    seen[0] = true;
    while let Some((b, rest)) = open.last_mut() {
        match rest.pop() {
            Some(s) => {
                if !std::mem::replace(&mut seen[s as usize], true) {
                    open.push((s as usize, successors(f, s)));
                }
            }
            None => {
                order.push(*b);
                open.pop();
            }
        }
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::super::super::{Block, Guard, Term};
    use super::*;

    /// A function of the given edges.
    fn graph(edges: &[&[BlockId]]) -> Function {
        let term = |to: &&[BlockId]| match **to {
            [] => Term::Exit,
            [a] => Term::Jump(a),
            [a, b, ..] => Term::Branch { guard: Guard { reg: 0, negated: false }, then: a, other: b },
        };
        let blocks = edges.iter().map(|to| Block { insts: Vec::new(), term: term(to) }).collect();
        Function { blocks, ..Function::default() }
    }

    #[test]
    fn a_loop_with_a_diamond_and_an_unreachable_block() {
        //  0 → 1; 1 → 2, 3; 2 → 4; 3 → 4; 4 → 1, 5; 6 → 5
        let d = Dominators::new(&graph(&[&[1], &[2, 3], &[4], &[4], &[1, 5], &[], &[5]]));
        let children = |b| {
            let mut c = d.children(b).to_vec();
            c.sort_unstable();
            c
        };
        assert_eq!((children(0), children(1), children(4)), (vec![1], vec![2, 3, 4], vec![5]));
        assert!(children(2).is_empty() && children(3).is_empty() && children(6).is_empty());
    }

    #[test]
    fn a_graph_made_to_take_long_is_given_up() {
        // A long chain, from each block of which a way leads back to half of its number.
        let n = 20_000;
        let edges: Vec<Vec<BlockId>> =
            (0..n).map(|i| if i + 1 < n { vec![i + 1, i / 2] } else { vec![] }).collect();
        let slices: Vec<&[BlockId]> = edges.iter().map(Vec::as_slice).collect();
        let d = Dominators::new(&graph(&slices));
        // Whatever it says must be true: the entry is above all, or each is right above the next.
        let first = d.children(0).len();
        assert!(first == n as usize - 1 || first == 1);
    }

    #[test]
    fn ways_that_cross() {
        // 0 → 1, 2; 1 → 3; 2 → 4; 3 → 4, 5; 4 → 3, 5: only the entry is on all ways.
        let d = Dominators::new(&graph(&[&[1, 2], &[3], &[4], &[4, 5], &[3, 5], &[]]));
        assert_eq!(d.children(0).len(), 5);
    }
}

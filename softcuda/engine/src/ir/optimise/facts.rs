//! What is known about registers on the way from the entry to a block.

use super::super::{Op, Opd, Reg};
use super::key::Key;
use std::collections::HashMap;

/// What a register holds.
#[derive(Debug, Clone, Copy)]
pub enum Fact {
    /// The same as this register, or this literal.
    Value(Opd),
    /// A register plus a number, in the width of the register.
    Sum(Reg, i64),
}

enum Step {
    Learned(Reg),
    Defined(Reg),
    Kept(u64),
}

/// Facts with a way back: leaving a part of the dominator tree forgets what was learned in it.
pub struct Facts {
    single: Vec<bool>,
    defined: Vec<bool>,
    facts: Vec<Option<Fact>>,
    results: HashMap<u64, Vec<(Op, Reg)>>,
    trail: Vec<Step>,
}

impl Facts {
    /// `single`: by register, whether it has one definition that always takes place.
    pub fn new(single: Vec<bool>) -> Facts {
        let n = single.len();
        Facts {
            single,
            defined: vec![false; n],
            facts: vec![None; n],
            results: HashMap::new(),
            trail: Vec::new(),
        }
    }

    pub fn single(&self, r: Reg) -> bool {
        self.single[r as usize]
    }

    /// The register's only definition dominates this place.
    pub fn ready(&self, r: Reg) -> bool {
        self.single(r) && self.defined[r as usize]
    }

    /// Now comes the definition of a register.
    pub fn defined(&mut self, r: Reg) {
        if self.single(r) && !std::mem::replace(&mut self.defined[r as usize], true) {
            self.trail.push(Step::Defined(r));
        }
    }

    /// What to put in the place of a register.
    pub fn value(&self, r: Reg) -> Option<Opd> {
        match self.facts[r as usize] {
            Some(Fact::Value(v)) => Some(v),
            _ => None,
        }
    }

    pub fn sum(&self, r: Reg) -> Option<(Reg, i64)> {
        match self.facts[r as usize] {
            Some(Fact::Sum(base, add)) => Some((base, add)),
            _ => None,
        }
    }

    pub fn learn(&mut self, r: Reg, fact: Fact) {
        self.facts[r as usize] = Some(fact);
        self.trail.push(Step::Learned(r));
    }

    /// The register with the result of an equal computation.
    pub fn earlier(&self, key: &Key) -> Option<Reg> {
        self.results.get(&key.hash)?.iter().find(|(op, _)| *op == key.op).map(|(_, r)| *r)
    }

    pub fn keep(&mut self, key: Key, r: Reg) {
        self.results.entry(key.hash).or_default().push((key.op, r));
        self.trail.push(Step::Kept(key.hash));
    }

    /// A place to go back to.
    pub fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Forgets what was learned since.
    pub fn forget(&mut self, mark: usize) {
        while self.trail.len() > mark {
            match self.trail.pop() {
                Some(Step::Learned(r)) => self.facts[r as usize] = None,
                Some(Step::Defined(r)) => self.defined[r as usize] = false,
                Some(Step::Kept(hash)) => {
                    if let Some(list) = self.results.get_mut(&hash) {
                        list.pop();
                    }
                }
                None => return,
            }
        }
    }
}

//! Which changes an executable graph takes.
#![forbid(unsafe_code)]

use super::node::Kind;
use super::plan::{Action, Plan, Step};
use crate::copy_box::BoxCopy;
use crate::error::*;
use crate::op::Op;

/// `CUgraphExecUpdateResult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// Something else.
    Error = 1,
    /// Other nodes or edges.
    Topology = 2,
    /// A node of another kind.
    Kind = 3,
    /// Parameters that cannot be changed.
    Parameters = 5,
    /// A change that is not supported.
    NotSupported = 6,
    /// A kernel of another context.
    Function = 7,
    /// Attributes that cannot be changed.
    Attributes = 8,
}

/// Why a graph does not go into an executable one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Why.
    pub reason: Reason,
    /// The node of the new graph, or 0.
    pub node: usize,
    /// For edges: the node that the edge of the new graph comes from, or 0.
    pub from: usize,
}

impl Mismatch {
    /// The new graph cannot be made executable.
    pub fn error(node: usize) -> Self {
        Self { reason: Reason::Error, node, from: 0 }
    }
}

/// Takes over what the new plan says, node by node in the order in which they were made.
///
/// # Errors
/// [`Mismatch`]; the old plan is then half changed.
pub fn plan(old: &mut Plan, new: &Plan) -> std::result::Result<(), Mismatch> {
    let at = |reason, node| Mismatch { reason, node, from: 0 };
    if old.steps.len() != new.steps.len() {
        let node = new.steps.get(old.steps.len()).map_or(0, |step| step.node);
        return Err(at(Reason::Topology, node));
    }
    for (old_step, new_step) in old.steps.iter_mut().zip(&new.steps) {
        if old_step.kind != new_step.kind {
            return Err(at(Reason::Kind, new_step.node));
        }
        if old_step.before != new_step.before {
            let differs = new_step.before.iter().find(|place| !old_step.before.contains(place));
            let from = differs.map_or(0, |place| new.steps[*place].node);
            return Err(Mismatch { reason: Reason::Topology, node: new_step.node, from });
        }
        step(old_step, new_step)?;
    }
    Ok(())
}

fn step(old: &mut Step, new: &Step) -> std::result::Result<(), Mismatch> {
    match (&mut old.action, &new.action) {
        (Action::Child(inside), Action::Child(other)) => plan(inside, other),
        (Action::Branch(condition, way, bodies), Action::Branch(other, other_way, others)) => {
            let same = condition.handle == other.handle && way == other_way && bodies.len() == others.len();
            if !same {
                return Err(Mismatch { reason: Reason::Parameters, node: new.node, from: 0 });
            }
            bodies.iter_mut().zip(others).try_for_each(|(body, other)| plan(body, other))
        }
        _ => replace(old, &new.action).map_err(|reason| Mismatch { reason, node: new.node, from: 0 }),
    }
}

/// Gives a step an action of its kind.
///
/// # Errors
/// Why it does not take it.
pub fn replace(step: &mut Step, new: &Action) -> std::result::Result<(), Reason> {
    match (&mut step.action, new) {
        (Action::Do(Op::Kernel(old)), Action::Do(Op::Kernel(other))) => {
            if old.context.handle != other.context.handle {
                return Err(Reason::Function);
            }
            if old.shape.cooperative != other.shape.cooperative {
                return Err(Reason::Attributes);
            }
        }
        (Action::Do(Op::Copy(old)), Action::Do(Op::Copy(other))) if !same_ends(old, other) => {
            return Err(Reason::Parameters);
        }
        (Action::Do(Op::Copies(old)), Action::Do(Op::Copies(other))) if !old.takes(other) => {
            return Err(Reason::Parameters);
        }
        (Action::Do(old), Action::Do(other))
            if std::mem::discriminant(old) != std::mem::discriminant(other) =>
        {
            return Err(Reason::Kind);
        }
        (Action::Child(inside), Action::Child(other)) => {
            return plan(inside, other).map_err(|mismatch| mismatch.reason);
        }
        // Memory is what the node was made with.
        (Action::Alloc(old), Action::Alloc(other)) => {
            return if old.size == other.size { Ok(()) } else { Err(Reason::Parameters) };
        }
        (Action::Free(_), Action::Free(_)) => return Err(Reason::NotSupported),
        (old, other) if std::mem::discriminant(&*old) != std::mem::discriminant(other) => {
            return Err(Reason::Kind);
        }
        _ => {}
    }
    step.action = new.clone();
    Ok(())
}

/// CUDA wants both ends of an updated copy to stay the kind of memory that they are.
fn same_ends(old: &BoxCopy, new: &BoxCopy) -> bool {
    (old.to.kind, old.from.kind) == (new.to.kind, new.from.kind)
}

impl Step {
    /// Whether it can be switched off.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub fn check_switchable(&self) -> Result {
        if matches!(self.kind, Kind::Kernel | Kind::Copy | Kind::Set) {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }
}

//! The order in which the nodes of an executable graph are done, and the doing.
#![forbid(unsafe_code)]

use super::Graph;
use super::conditional::{Condition, Way};
use super::memory::GraphMemory;
use super::node::{Content, Dependency, Kind};
use crate::context::Fate;
use crate::driver::TABLES;
use crate::error::*;
use crate::event::Record;
use crate::op::Op;
use crate::stream;
use std::collections::HashMap;
use std::sync::Arc;

/// What a step does.
#[derive(Clone)]
pub enum Action {
    /// An operation.
    Do(Op),
    /// Nothing.
    Nothing,
    /// The steps of a child graph.
    Child(Plan),
    /// Records an event, by handle.
    Record(usize),
    /// Waits for an event, by handle.
    Wait(usize),
    /// Memory is taken. It is there; that it is the program's was noted at the launch.
    Alloc(Arc<GraphMemory>),
    /// Memory is given back: noted at the launch.
    Free(Arc<GraphMemory>),
    /// Bodies, as a value says.
    Branch(Arc<Condition>, Way, Vec<Plan>),
}

/// One node of an executable graph.
#[derive(Clone)]
pub struct Step {
    /// The node of the graph that it was made of.
    pub node: usize,
    /// What the node is.
    pub kind: Kind,
    /// What is done.
    pub action: Action,
    /// Steps that it waits for, by their places in [`Plan::steps`], sorted.
    pub before: Vec<usize>,
    /// `cuGraphNodeSetEnabled`: a step that is not does nothing.
    pub enabled: bool,
}

/// The steps of a graph.
#[derive(Clone, Default)]
pub struct Plan {
    /// In the order in which the nodes were made.
    pub steps: Vec<Step>,
    /// Places in `steps`, each behind all that it waits for.
    order: Vec<usize>,
}

/// The recordings that belong to one launch, by node: those that it makes, and those that it waits for.
#[derive(Default)]
pub struct Marks {
    made: HashMap<usize, Arc<Record>>,
    awaited: HashMap<usize, Arc<Record>>,
}

impl Marks {
    /// Comes past every recording, whatever happened: nothing may wait for ever.
    pub fn pass_all(&self) {
        for record in self.made.values().filter(|r| !r.is_done()) {
            record.pass();
        }
    }
}

impl Plan {
    /// The plan of a graph as it is now.
    ///
    /// # Errors
    /// A node on a cycle.
    pub fn of(graph: &Graph) -> std::result::Result<Plan, usize> {
        let inner = graph.lock();
        let places: HashMap<usize, usize> = inner.nodes.keys().enumerate().map(|(i, h)| (*h, i)).collect();
        let mut steps = Vec::with_capacity(places.len());
        for node in inner.nodes.values() {
            let mut before: Vec<usize> = node.before.iter().map(|d| places[&d.node]).collect();
            before.sort_unstable();
            before.dedup();
            let (kind, action) = (node.content.kind(), action(&node.content)?);
            steps.push(Step { node: node.handle, kind, action, before, enabled: true });
        }
        let order = order(&steps).map_err(|place| steps[place].node)?;
        Ok(Plan { steps, order })
    }

    /// The step of a node, also inside of child graphs and bodies.
    pub fn step_mut(&mut self, node: usize) -> Option<&mut Step> {
        // Two passes, as a found step cannot be returned from within a search that goes on.
        if let Some(place) = self.steps.iter().position(|step| step.node == node) {
            return self.steps.get_mut(place);
        }
        self.steps.iter_mut().find_map(|step| match &mut step.action {
            Action::Child(plan) => plan.step_mut(node),
            Action::Branch(_, _, bodies) => bodies.iter_mut().find_map(|body| body.step_mut(node)),
            _ => None,
        })
    }

    /// A graph that does what the plan does, to be part of a node. A step that is switched off is a node that does nothing.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` for memory and conditional nodes, as for a clone of a graph.
    pub fn graph(&self) -> Result<Arc<Graph>> {
        let graph = Graph::new(true);
        let mut nodes = vec![0; self.steps.len()];
        let made = self.order.iter().try_for_each(|place| {
            let step = &self.steps[*place];
            let before = step.before.iter().map(|place| Dependency::plain(nodes[*place])).collect();
            nodes[*place] = graph.add(step.content()?, before)?;
            Ok(())
        });
        made.inspect_err(|_| Graph::forget(&graph))?;
        Ok(graph)
    }

    /// Every memory action in order, bodies excepted (CUDA allows none there).
    pub fn memory(&self) -> Vec<(&Arc<GraphMemory>, bool)> {
        let mut all = Vec::new();
        for place in &self.order {
            match &self.steps[*place].action {
                Action::Alloc(memory) => all.push((memory, true)),
                Action::Free(memory) => all.push((memory, false)),
                Action::Child(plan) => all.extend(plan.memory()),
                _ => {}
            }
        }
        all
    }

    /// The recordings of a launch that is being asked for now.
    pub fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        self.add_marks(&mut marks);
        marks
    }

    fn add_marks(&self, marks: &mut Marks) {
        for step in self.order.iter().map(|place| &self.steps[*place]) {
            match &step.action {
                Action::Record(event) if step.enabled => {
                    if let Some(event) = TABLES.events.get(*event) {
                        marks.made.insert(step.node, event.start_record());
                    }
                }
                Action::Wait(event) if step.enabled => {
                    if let Some(record) = TABLES.events.get(*event).and_then(|e| e.last_record()) {
                        marks.awaited.insert(step.node, record);
                    }
                }
                Action::Child(plan) => plan.add_marks(marks),
                _ => {}
            }
        }
    }

    /// Does all steps in order.
    ///
    /// # Errors
    /// The first error; nothing is done after it.
    pub fn run(&self, marks: &Marks, fate: &Fate) -> Result {
        self.order
            .iter()
            .map(|place| &self.steps[*place])
            .filter(|s| s.enabled)
            .try_for_each(|s| s.run(marks, fate))
    }

    /// The conditions of the graph and everything in it start a launch.
    ///
    /// # Errors
    /// As [`Condition::start`].
    pub fn start_conditions(&self) -> Result {
        self.steps.iter().try_for_each(|step| match &step.action {
            Action::Branch(condition, _, bodies) => {
                condition.start()?;
                bodies.iter().try_for_each(Plan::start_conditions)
            }
            Action::Child(plan) => plan.start_conditions(),
            _ => Ok(()),
        })
    }
}

impl Step {
    fn content(&self) -> Result<Content> {
        Ok(match &self.action {
            _ if !self.enabled => Content::Empty,
            Action::Do(op) => Content::Do(op.clone()),
            Action::Nothing => Content::Empty,
            Action::Child(plan) => Content::Child(plan.graph()?),
            Action::Record(event) => Content::Record(*event),
            Action::Wait(event) => Content::Wait(*event),
            Action::Alloc(_) | Action::Free(_) | Action::Branch(..) => return Err(CUDA_ERROR_NOT_SUPPORTED),
        })
    }

    fn run(&self, marks: &Marks, fate: &Fate) -> Result {
        match &self.action {
            Action::Do(op) => op.run()?,
            Action::Child(plan) => plan.run(marks, fate)?,
            Action::Record(_) => {
                if let Some(record) = marks.made.get(&self.node) {
                    record.pass();
                }
            }
            Action::Wait(_) => {
                if let Some(record) = marks.awaited.get(&self.node) {
                    stream::wait_for(record, fate);
                }
            }
            Action::Branch(condition, way, bodies) => branch(condition, *way, bodies, fate)?,
            Action::Nothing | Action::Alloc(_) | Action::Free(_) => {}
        }
        Ok(())
    }
}

fn branch(condition: &Condition, way: Way, bodies: &[Plan], fate: &Fate) -> Result {
    let run = |body: &Plan| {
        // Each turn of a body records its events anew.
        let marks = body.marks();
        let done = body.run(&marks, fate);
        marks.pass_all();
        done
    };
    match way {
        Way::If => {
            let chosen = if condition.value()? != 0 { bodies.first() } else { bodies.get(1) };
            chosen.map_or(Ok(()), run)
        }
        Way::While => {
            while condition.value()? != 0 {
                fate.check()?;
                bodies.iter().try_for_each(run)?;
            }
            Ok(())
        }
        Way::Switch => bodies.get(condition.value()? as usize).map_or(Ok(()), run),
    }
}

fn action(content: &Content) -> std::result::Result<Action, usize> {
    Ok(match content {
        Content::Do(op) => Action::Do(op.clone()),
        Content::Empty => Action::Nothing,
        Content::Child(graph) => Action::Child(Plan::of(graph)?),
        Content::Record(event) => Action::Record(*event),
        Content::Wait(event) => Action::Wait(*event),
        Content::Alloc(memory) => Action::Alloc(memory.clone()),
        Content::Free(memory) => Action::Free(memory.clone()),
        Content::Conditional(condition, body) => {
            let bodies =
                body.graphs.iter().map(|graph| Plan::of(graph)).collect::<std::result::Result<_, _>>()?;
            Action::Branch(condition.clone(), body.way, bodies)
        }
    })
}

/// Each place behind all that it waits for, else in the order given.
///
/// # Errors
/// A place on a cycle.
fn order(steps: &[Step]) -> std::result::Result<Vec<usize>, usize> {
    let mut open: Vec<usize> = steps.iter().map(|s| s.before.len()).collect();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (place, step) in steps.iter().enumerate() {
        step.before.iter().for_each(|before| after[*before].push(place));
    }
    let mut ready: std::collections::BTreeSet<usize> = (0..steps.len()).filter(|i| open[*i] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(place) = ready.pop_first() {
        order.push(place);
        for next in &after[place] {
            open[*next] -= 1;
            if open[*next] == 0 {
                ready.insert(*next);
            }
        }
    }
    if order.len() == steps.len() {
        return Ok(order);
    }
    Err(open.iter().position(|n| *n > 0).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(before: &[&[usize]]) -> Vec<Step> {
        let step = |(node, before): (usize, &&[usize])| Step {
            node,
            kind: Kind::Empty,
            action: Action::Nothing,
            before: before.to_vec(),
            enabled: true,
        };
        before.iter().enumerate().map(step).collect()
    }

    #[test]
    fn steps_come_behind_what_they_wait_for() {
        assert_eq!(order(&steps(&[&[], &[], &[0, 1]])), Ok(vec![0, 1, 2]));
        assert_eq!(order(&steps(&[&[2], &[0], &[]])), Ok(vec![2, 0, 1]));
        assert_eq!(order(&[]), Ok(vec![]));
    }

    #[test]
    fn a_cycle_is_found() {
        assert_eq!(order(&steps(&[&[], &[2], &[1]])), Err(1));
        assert_eq!(order(&steps(&[&[0]])), Err(0));
    }
}

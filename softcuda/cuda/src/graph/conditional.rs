//! Conditional nodes: bodies that run if, while or as often as a value says.
#![forbid(unsafe_code)]

use super::Graph;
use crate::context::Context;
use crate::device::Device;
use crate::error::*;
use std::sync::Arc;

/// The value of a condition. It is a word of device memory, and its address is the handle: so a kernel sets it by a store.
pub struct Condition {
    /// `CUgraphConditionalHandle`.
    pub handle: u64,
    device: Arc<Device>,
    /// What a launch sets it to first, if anything.
    default: Option<u32>,
}

/// `CUgraphConditionalNodeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The first body if the value is not 0, else the second, if there is one.
    If,
    /// The body while the value is not 0.
    While,
    /// The body whose number the value is, if there is one.
    Switch,
}

impl Way {
    /// The way of a number, with so many bodies.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a number that is none, or bodies that it cannot have.
    pub fn of(number: u32, bodies: u32) -> Result<Way> {
        match (number, bodies) {
            (0, 1 | 2) => Ok(Way::If),
            (1, 1) => Ok(Way::While),
            (2, 1..) => Ok(Way::Switch),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// What a conditional node runs.
#[derive(Clone)]
pub struct Body {
    /// How the value chooses.
    pub way: Way,
    /// The graphs.
    pub graphs: Vec<Arc<Graph>>,
    /// Their handles, which the program is shown.
    pub handles: Arc<[usize]>,
}

impl Body {
    /// Empty graphs.
    pub fn new(way: Way, count: u32) -> Body {
        let graphs: Vec<_> = (0..count).map(|_| Graph::new(true)).collect();
        let handles = graphs.iter().map(|graph| graph.handle).collect();
        Body { way, graphs, handles }
    }
}

impl Condition {
    /// `cuGraphConditionalHandleCreate`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for unknown flags, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn new(context: &Context, default: u32, flags: u32) -> Result<Arc<Condition>> {
        // CU_GRAPH_COND_ASSIGN_DEFAULT
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = context.device.clone();
        let handle = device.memory.alloc(4, 4).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        let condition = Condition { handle, device, default: (flags == 1).then_some(default) };
        condition.store(0)?;
        Ok(Arc::new(condition))
    }

    /// A launch begins.
    ///
    /// # Errors
    /// As [`Condition::value`].
    pub fn start(&self) -> Result {
        self.default.map_or(Ok(()), |value| self.store(value))
    }

    fn store(&self, value: u32) -> Result {
        let done = self.device.memory.store_word(self.handle, false, u64::from(value));
        if done { Ok(()) } else { Err(CUDA_ERROR_ILLEGAL_ADDRESS) }
    }

    /// The value now.
    ///
    /// # Errors
    /// `CUDA_ERROR_ILLEGAL_ADDRESS` if its memory is gone.
    pub fn value(&self) -> Result<u32> {
        let value = self.device.memory.load_word(self.handle, false).ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
        Ok(value as u32)
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        self.device.memory.free(self.handle);
    }
}

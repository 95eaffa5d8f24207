//! What the client knows of the session's objects, so that most questions need no answer from the worker.

pub mod arena;
pub mod heap;
pub mod held;
pub mod image;
pub mod memory;
pub mod objects;
pub mod order;
pub mod pinned;
pub mod ranges;
pub mod recent;
pub mod table;
pub mod watch;

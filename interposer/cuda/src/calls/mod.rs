//! The hand-written bodies, one function a declaration of the call list, under its name. They are safe code: arguments come
//! as [`crate::cptr`] describes.
#![allow(non_snake_case, clippy::too_many_arguments)]

mod callback;
mod context;
mod copy;
mod copy_rect;
pub mod credit;
mod device;
mod event;
mod function;
mod images;
mod jit;
mod landing;
mod launch;
mod library;
pub mod link;
mod memory;
mod module;
mod occupancy;
mod pinned;
mod pointer;
mod pool;
mod primary;
mod profiler;
mod set;
mod start;
mod stream;

pub use callback::*;
pub use context::*;
pub use copy::*;
pub use copy_rect::*;
pub use device::*;
pub use event::*;
pub use function::*;
pub use launch::*;
pub use library::*;
pub use link::*;
pub use memory::*;
pub use module::*;
pub use occupancy::*;
pub use pinned::*;
pub use pointer::*;
pub use pool::*;
pub use primary::*;
pub use profiler::*;
pub use set::*;
pub use start::*;
pub use stream::*;

pub use primary::primary_context;

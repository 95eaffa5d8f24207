//! Records, the command ring, reply slots and the completion board.

pub mod codec;

//! What a device does, as a value: a stream does it once, a graph holds it and does it at every launch.
//!
//! Everything that can be wrong is found when the value is made (`prepare` of each kind), so that the call that asks for
//! it gives the error; only what the program breaks afterwards is left to [`Op::run`].
#![forbid(unsafe_code)]

use crate::copy_batch::CopyBatch;
use crate::copy_box::BoxCopy;
use crate::error::*;
use crate::host_call::HostCall;
use crate::launch::KernelOp;
use crate::memset::Fill;
use crate::words::Batch;
use crate::{clock, share};
use std::sync::Arc;

/// One operation. A clone is the same operation again.
#[derive(Clone)]
pub enum Op {
    /// A kernel.
    Kernel(Arc<KernelOp>),
    /// A copy of any shape.
    Copy(Arc<BoxCopy>),
    /// Several copies; only graphs have them.
    Copies(Arc<CopyBatch>),
    /// A memory set.
    Set(Arc<Fill>),
    /// A function of the program.
    Host(HostCall),
    /// Stream memory operations.
    Words(Arc<Batch>),
}

/// Whether moving so many bytes takes some microseconds only: less than waking a stream's thread.
pub fn is_short(bytes: usize) -> bool {
    bytes <= 64 << 10 && !share::is_slow()
}

impl Op {
    /// Does it, on the calling thread.
    ///
    /// # Errors
    /// The error that then ends the context.
    pub fn run(&self) -> Result {
        match self {
            // Says itself when the device was done with it.
            Op::Kernel(kernel) => return kernel.run(),
            Op::Copy(copy) => copy.run()?,
            Op::Copies(batch) => batch.run()?,
            Op::Set(fill) => fill.run()?,
            Op::Host(call) => call.run(),
            Op::Words(batch) => batch.run()?,
        }
        clock::ended_now();
        Ok(())
    }

    /// Whether it is so short that starting a thread's turn costs more: where nothing is before it, the thread that asks
    /// for it does it at once.
    pub fn is_short(&self) -> bool {
        match self {
            Op::Copy(copy) => is_short(copy.bytes()),
            Op::Copies(batch) => is_short(batch.bytes()),
            Op::Set(fill) => is_short(fill.bytes()),
            Op::Words(batch) => batch.never_waits(),
            Op::Kernel(_) | Op::Host(_) => false,
        }
    }
}

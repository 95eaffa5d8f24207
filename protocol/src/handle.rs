//! Names that the client gives to objects of the worker.

/// The table that a handle belongs to. Append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// Contexts.
    Context,
    /// Streams.
    Stream,
    /// Events.
    Event,
    /// Modules.
    Module,
    /// Libraries.
    Library,
    /// Functions and kernels.
    Function,
    /// Memory pools.
    MemPool,
}

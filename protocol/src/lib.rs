//! What client and server of gpupool must agree on: call list, wire, transports, control messages.
//!
//! The crate knows neither CUDA's behaviour nor scheduling. Where to look: `docs/ARCHITECTURE.md`.

/// The one number that client and server must share exactly. It is raised only when the record header, the regions'
/// layout, the control messages or the meaning of an existing call change; new calls get new numbers instead.
pub const WIRE_VERSION: u32 = 7;

pub mod api;
pub mod config;
pub mod control;
pub mod handle;
pub mod image;
pub mod small_file;
pub mod transport;
pub mod wire;

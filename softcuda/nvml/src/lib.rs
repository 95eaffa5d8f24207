//! An NVML that tells of softcuda's devices: the same fleet as the driver's, and what the devices' files say of its use.
//!
//! [`devices`] is the telling; `exports` turns NVML's prototypes into it.

mod devices;
mod exports;
mod status;

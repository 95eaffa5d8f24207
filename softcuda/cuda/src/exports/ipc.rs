//! Memory and events of other processes.

use super::{handle, out};
use crate::error::*;
use crate::event;
use crate::ipc::{self, Handle};
use cudarc::driver::sys::CUevent;
use softcuda_device::signal::Name;

/// `CUipcEventHandle`: what a program passes on, as it likes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct EventHandle {
    mark: u64,
    name: Name,
    rest: [u64; 5],
}

/// "softcevt"
const MARK: u64 = u64::from_le_bytes(*b"softcevt");

exports! { ($) ipc_names, initialised;
    cuIpcGetMemHandle(to: *mut Handle, address: u64) { out(to)?.set(ipc::export(address)?) }
    cuIpcOpenMemHandle(address: *mut u64, handle: Handle, flags: u32) {
        out(address)?.set(ipc::open(&handle, flags)?)
    }
    cuIpcOpenMemHandle_v2(address: *mut u64, handle: Handle, flags: u32) {
        out(address)?.set(ipc::open(&handle, flags)?)
    }
    cuIpcGetEventHandle(to: *mut EventHandle, event: CUevent) {
        out(to)?.set(EventHandle { mark: MARK, name: event::export(event.addr())?, rest: [0; 5] })
    }
    cuIpcOpenEventHandle(event: *mut CUevent, from: EventHandle) {
        let event = out(event)?;
        if from.mark != MARK {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        event.set(handle(event::import(from.name)?))
    }
    cuIpcCloseMemHandle(address: u64) { ipc::close(address) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUipcEventHandle, CUipcMemHandle};

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<Handle>(), size_of::<CUipcMemHandle>());
        assert_eq!(size_of::<EventHandle>(), size_of::<CUipcEventHandle>());
    }
}

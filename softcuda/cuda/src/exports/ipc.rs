//! Memory of other processes.

use super::out;
use crate::ipc::{self, Handle};

exports! { ($) ipc_names, initialised;
    cuIpcGetMemHandle(to: *mut Handle, address: u64) { out(to)?.set(ipc::export(address)?) }
    cuIpcOpenMemHandle(address: *mut u64, handle: Handle, flags: u32) {
        out(address)?.set(ipc::open(&handle, flags)?)
    }
    cuIpcOpenMemHandle_v2(address: *mut u64, handle: Handle, flags: u32) {
        out(address)?.set(ipc::open(&handle, flags)?)
    }
    cuIpcCloseMemHandle(address: u64) { ipc::close(address) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUipcMemHandle;

    #[test]
    fn our_struct_is_cudas() {
        assert_eq!(size_of::<Handle>(), size_of::<CUipcMemHandle>());
    }
}

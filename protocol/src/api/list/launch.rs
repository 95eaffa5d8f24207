//! Kernels and host functions.

macro_rules! list_launch {
    ([$next:ident $($rest:ident)*] $($list:tt)*) => { $next! { [$($rest)*] $($list)*

/// Launches with parameters packed by the kernel's layout. `attributes`: launch attributes as (id, 64 bytes) rows in the
/// header's own layout, handles in them translated by the worker. `cooperative`: 1 for cuLaunchCooperativeKernel.
500 post(hand) record launch(function: Function, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, dynamic_shared: u32, stream: Stream, cooperative: u32, attributes: Value<Vec<u8>>, parameters: Value<Vec<u8>>);
/// The completion board queues `callback` when the stream comes to it, and the stream goes on at `callback_done`.
501 post(hand) record host_function(stream: Stream, callback: u64);
hand post cuLaunchKernel | cuLaunchKernel_ptsz(function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, dynamic_shared: u32, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void) using launch;
hand post cuLaunchKernelEx | cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void) using launch;
hand post cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz(function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, dynamic_shared: u32, stream: CUstream, parameters: *mut *mut c_void) using launch;
hand post cuLaunchHostFunc | cuLaunchHostFunc_ptsz(stream: CUstream, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) using host_function, callback_done;
hand post cuLaunchHostFunc_v2 | cuLaunchHostFunc_v2_ptsz(stream: CUstream, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void, sync_mode: u32) using host_function, callback_done;
hand post cuStreamAddCallback | cuStreamAddCallback_ptsz(stream: CUstream, function: Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>, data: *mut c_void, flags: u32) using host_function, callback_done;

    }};
}

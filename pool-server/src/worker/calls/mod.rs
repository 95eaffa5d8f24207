//! Hand-written bodies, one function for each record that is declared `hand`, under the record's name.

mod context;
mod copy;
mod event;
mod heap;
mod image;
mod launch;
mod link;
mod memory;
mod module;
mod pinned;
mod session;
mod stream;

pub use context::*;
pub use copy::*;
pub use event::*;
pub use heap::*;
pub use launch::*;
pub use link::*;
pub use memory::*;
pub use module::*;
pub use pinned::*;
pub use session::*;
pub use stream::*;

use gpupool_protocol::api::numbers;

use super::functions::Functions;

/// Whether the driver has the functions that a hand-written body needs.
pub fn possible(f: &Functions, number: u16) -> bool {
    use numbers as n;
    // Without its kernels' names and parameters nothing of a module can be used (CUDA 12.4 and later have them).
    let function_layout = f.cuFuncGetName.is_some() && f.cuFuncGetParamInfo.is_some();
    let modules =
        f.cuModuleEnumerateFunctions.is_some() && f.cuModuleGetFunctionCount.is_some() && function_layout;
    let kernel_layout = f.cuKernelGetName.is_some() && f.cuKernelGetParamInfo.is_some();
    let libraries =
        f.cuLibraryEnumerateKernels.is_some() && f.cuLibraryGetKernelCount.is_some() && kernel_layout;
    let needs: &[(&[u16], bool)] = &[
        (&[n::parcel_put, n::parcel_get, n::take_output, n::callback_done, n::lane_end], true),
        (&[n::primary_name, n::primary_retain], f.cuDevicePrimaryCtxRetain.is_some()),
        (&[n::primary_release], f.cuDevicePrimaryCtxRelease_v2.is_some()),
        (&[n::primary_reset], f.cuDevicePrimaryCtxReset_v2.is_some()),
        (&[n::primary_state], f.cuDevicePrimaryCtxGetState.is_some()),
        (&[n::primary_set_flags], f.cuDevicePrimaryCtxSetFlags_v2.is_some()),
        (&[n::context_create], f.cuCtxCreate_v2.is_some()),
        (&[n::context_destroy], f.cuCtxDestroy_v2.is_some()),
        (&[n::mem_alloc], f.cuMemAlloc_v2.is_some() && f.cuMemAllocPitch_v2.is_some()),
        (&[n::mem_free], f.cuMemFree_v2.is_some()),
        (&[n::mem_info, n::heap_reclaim], f.cuMemGetInfo_v2.is_some()),
        (
            &[n::heap_place, n::heap_grow, n::heap_shrink],
            f.cuMemAddressReserve.is_some()
                && f.cuMemAddressFree.is_some()
                && f.cuMemGetAllocationGranularity.is_some()
                && f.cuMemCreate.is_some()
                && f.cuMemRelease.is_some()
                && f.cuMemMap.is_some()
                && f.cuMemUnmap.is_some()
                && f.cuMemSetAccess.is_some()
                && f.cuMemGetInfo_v2.is_some(),
        ),
        (&[n::mem_alloc_async], f.cuMemAllocAsync.is_some() && f.cuMemAllocFromPoolAsync.is_some()),
        (&[n::mem_free_async], f.cuMemFreeAsync.is_some()),
        (
            &[n::arena_place, n::host_lock, n::host_unlock],
            f.cuMemHostRegister_v2.is_some() && f.cuMemHostUnregister.is_some(),
        ),
        (&[n::pool_name], f.cuDeviceGetDefaultMemPool.is_some() && f.cuDeviceGetMemPool.is_some()),
        (&[n::pool_get_attribute], f.cuMemPoolGetAttribute.is_some()),
        (&[n::pool_set_attribute], f.cuMemPoolSetAttribute.is_some()),
        (&[n::copy_in], f.cuMemcpyHtoDAsync_v2.is_some()),
        (&[n::copy_out], f.cuMemcpyDtoHAsync_v2.is_some() && f.cuStreamSynchronize.is_some()),
        (&[n::copy_from_host], f.cuMemcpyHtoDAsync_v2.is_some()),
        (&[n::copy_to_host], f.cuMemcpyDtoHAsync_v2.is_some()),
        (
            &[n::copy_to_landing],
            f.cuMemcpyDtoHAsync_v2.is_some()
                && f.cuLaunchHostFunc.is_some()
                && f.cuStreamSynchronize.is_some()
                && f.cuMemHostRegister_v2.is_some()
                && f.cuMemHostUnregister.is_some(),
        ),
        (&[n::copy_device], f.cuMemcpyDtoDAsync_v2.is_some()),
        (&[n::set], f.cuMemsetD8Async.is_some() && f.cuMemsetD2D8Async.is_some()),
        (&[n::module_load, n::module_unload, n::module_function], f.cuModuleLoadDataEx.is_some() && modules),
        (
            &[n::library_load, n::library_unload, n::library_kernel],
            f.cuLibraryLoadData.is_some() && libraries,
        ),
        (&[n::function_end], modules || libraries),
        (&[n::library_module], f.cuLibraryGetModule.is_some() && f.cuKernelGetFunction.is_some()),
        (&[n::module_global], f.cuModuleGetGlobal_v2.is_some()),
        (&[n::library_global], f.cuLibraryGetGlobal.is_some()),
        (&[n::function_get_attribute], f.cuFuncGetAttribute.is_some()),
        (&[n::function_set_attribute], f.cuFuncSetAttribute.is_some()),
        (&[n::function_set_cache], f.cuFuncSetCacheConfig.is_some()),
        (
            &[n::link],
            f.cuLinkCreate_v2.is_some() && f.cuLinkAddData_v2.is_some() && f.cuLinkComplete.is_some(),
        ),
        (&[n::launch], f.cuLaunchKernel.is_some()),
        (&[n::host_function], f.cuLaunchHostFunc.is_some()),
        (&[n::stream_create], f.cuStreamCreateWithPriority.is_some()),
        (&[n::stream_destroy], f.cuStreamDestroy_v2.is_some()),
        (&[n::stream_synchronize], f.cuStreamSynchronize.is_some()),
        (&[n::stream_query, n::stream_watch], f.cuStreamQuery.is_some()),
        (&[n::context_synchronize, n::context_settle], f.cuCtxSynchronize.is_some()),
        (&[n::event_create], f.cuEventCreate.is_some()),
        (&[n::event_destroy], f.cuEventDestroy_v2.is_some()),
        (&[n::event_record], f.cuEventRecord.is_some()),
        (&[n::event_synchronize], f.cuEventSynchronize.is_some()),
        (&[n::event_query, n::event_watch], f.cuEventQuery.is_some()),
    ];
    needs.iter().any(|(numbers, has)| *has && numbers.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::dispatch::AutoFunctions;
    use gpupool_protocol::api::CALLS;

    /// A record that nobody lists would never be answered.
    #[test]
    fn a_driver_with_everything_answers_every_record() {
        let some = |_: &str| Some(std::ptr::dangling::<std::ffi::c_void>());
        #[allow(unsafe_code)]
        // SAFETY: the functions are counted and not called.
        let (auto, hand) = unsafe { (AutoFunctions::load(some), Functions::load(some)) };
        for call in CALLS {
            let (auto, hand) = (auto.has(call.number), possible(&hand, call.number));
            assert!(auto != hand, "{}: auto {auto}, hand {hand}", call.name);
            assert!(!possible(&Functions::default(), call.number) || call.number < 100, "{}", call.name);
        }
    }
}

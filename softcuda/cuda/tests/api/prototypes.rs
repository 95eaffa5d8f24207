//! The library's functions, as the tests call them: names of one prototype, and their arguments.

use super::*;

/// `CUoccupancyB2DSize`.
pub type DynamicSize = Option<extern "C" fn(i32) -> usize>;

macro_rules! api {
    ($($($name:ident)+: $arguments:tt;)*) => {
        pub struct Api {
            $($(pub $name: unsafe extern "C" fn $arguments -> CUresult,)+)*
        }

        impl Api {
            pub(super) fn load() -> Api {
                unsafe {
                    let library = libloading::Library::new(path()).expect("the library can be opened");
                    let api = Api {
                        $($($name: *library.get(concat!(stringify!($name), "\0").as_bytes()).expect(stringify!($name)),)+)*
                    };
                    std::mem::forget(library);
                    api
                }
            }
        }
    };
}

api! {
    // The driver.
    cuInit: (u32);
    cuDriverGetVersion: (*mut i32);
    cuGetErrorName cuGetErrorString: (u32, *mut *const c_char);
    cuGetProcAddress_v2: (*const c_char, *mut *mut c_void, i32, u64, *mut u32);
    cuGetExportTable: (*mut *const c_void, *const c_void);
    cuGetProcAddress: (*const c_char, *mut *mut c_void, i32, u64);

    // Devices.
    cuDeviceGetCount: (*mut i32);
    cuDeviceGetAttribute: (*mut i32, u32, i32);
    cuDevicePrimaryCtxRetain: (*mut H, i32);
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRelease: (i32);
    cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxReset: (i32);
    cuDevicePrimaryCtxGetState: (i32, *mut u32, *mut i32);
    cuDeviceCanAccessPeer: (*mut i32, i32, i32);
    cuDeviceGetP2PAttribute: (*mut i32, u32, i32, i32);
    cuDeviceGetDevResource: (i32, *mut sys::CUdevResource, u32);
    cuDeviceGetHostAtomicCapabilities: (*mut u32, *const u32, u32, i32);
    cuDeviceGetP2PAtomicCapabilities: (*mut u32, *const u32, u32, i32, i32);
    cuDeviceGetTexture1DLinearMaxWidth: (*mut usize, u32, u32, i32);
    cuDeviceRegisterAsyncNotification: (i32, *const c_void, *mut c_void, *mut H);
    cuDeviceUnregisterAsyncNotification: (i32, H);
    cuDeviceComputeCapability: (*mut i32, *mut i32, i32);
    cuDeviceGet: (*mut i32, i32);
    cuDeviceGetByPCIBusId: (*mut i32, *const c_char);
    cuDeviceGetExecAffinitySupport: (*mut i32, u32, i32);
    cuDeviceGetName cuDeviceGetPCIBusId: (*mut c_char, i32, i32);
    cuDeviceGetProperties: (*mut sys::CUdevprop, i32);
    cuDeviceGetUuid_v2 cuDeviceGetUuid: (*mut [u8; 16], i32);
    cuDevicePrimaryCtxSetFlags_v2 cuDevicePrimaryCtxSetFlags: (i32, u32);
    cuDeviceTotalMem_v2: (*mut usize, i32);

    // Contexts.
    cuCtxCreate_v2 cuCtxCreate: (*mut H, u32, i32);
    cuCtxDestroy_v2 cuCtxDestroy: (H);
    cuCtxSetCurrent: (H);
    cuCtxGetCurrent: (*mut H);
    cuCtxPushCurrent_v2 cuCtxPushCurrent: (H);
    cuCtxPopCurrent_v2 cuCtxPopCurrent: (*mut H);
    cuCtxGetDevice: (*mut i32);
    cuCtxSynchronize: ();
    cuCtxGetLimit: (*mut usize, u32);
    cuCtxSetLimit: (u32, usize);
    cuCtxEnablePeerAccess: (H, u32);
    cuCtxDisablePeerAccess: (H);
    cuCtxGetStreamPriorityRange: (*mut i32, *mut i32);
    cuCtxRecordEvent: (H, H);
    cuCtxWaitEvent: (H, H);
    cuCtxAttach: (*mut H, u32);
    cuCtxDetach: (H);
    cuCtxGetExecAffinity: (*mut c_void, u32);
    cuCtxCreate_v4: (*mut H, *mut sys::CUctxCreateParams, u32, i32);
    cuCtxCreate_v3: (*mut H, *mut c_void, i32, u32, i32);
    cuCtxGetApiVersion: (H, *mut u32);
    cuCtxGetCacheConfig: (*mut u32);
    cuCtxGetSharedMemConfig: (*mut u32);
    cuCtxGetFlags: (*mut u32);
    cuCtxGetDevice_v2: (*mut i32, H);
    cuCtxGetId: (H, *mut u64);
    cuCtxResetPersistingL2Cache: ();
    cuCtxSetCacheConfig: (u32);
    cuCtxSetFlags: (u32);
    cuCtxSetSharedMemConfig: (u32);
    cuCtxSynchronize_v2: (H);

    // Green contexts.
    cuCtxGetDevResource: (H, *mut sys::CUdevResource, u32);
    cuGreenCtxGetDevResource: (H, *mut sys::CUdevResource, u32);
    cuDevSmResourceSplitByCount: (*mut sys::CUdevResource, *mut u32, *const sys::CUdevResource, *mut
        sys::CUdevResource, u32, u32);
    cuDevSmResourceSplit: (*mut sys::CUdevResource, u32, *const sys::CUdevResource, *mut sys::CUdevResource, u32,
        *mut [u32; 16]);
    cuDevResourceGenerateDesc: (*mut H, *const sys::CUdevResource, u32);
    cuGreenCtxCreate: (*mut H, H, i32, u32);
    cuGreenCtxDestroy: (H);
    cuGreenCtxGetId: (H, *mut u64);
    cuGreenCtxStreamCreate: (*mut H, H, u32, i32);
    cuGreenCtxRecordEvent: (H, H);
    cuGreenCtxWaitEvent: (H, H);
    cuCtxFromGreenCtx: (*mut H, H);

    // Memory.
    cuMemAlloc_v2: (*mut u64, usize);
    cuMemAllocPitch_v2: (*mut u64, *mut usize, usize, usize, u32);
    cuMemFree_v2: (u64);
    cuMemGetInfo_v2: (*mut usize, *mut usize);
    cuMemGetAddressRange_v2: (*mut u64, *mut usize, u64);
    cuMemHostAlloc: (*mut *mut c_void, usize, u32);
    cuMemFreeHost: (*mut c_void);
    cuMemHostRegister_v2 cuMemHostRegister: (*mut c_void, usize, u32);
    cuMemHostUnregister: (*mut c_void);
    cuMemHostGetDevicePointer_v2: (*mut u64, *mut c_void, u32);
    cuPointerGetAttribute: (*mut c_void, u32, u64);
    cuPointerGetAttributes: (u32, *mut u32, *mut *mut c_void, u64);
    cuMemHostGetFlags: (*mut u32, *mut c_void);
    cuPointerSetAttribute: (*const c_void, u32, u64);
    cuMemAlloc: ();
    cuMemAllocHost_v2: (*mut *mut c_void, usize);
    cuMemGetHandleForAddressRange: (*mut c_void, u64, usize, u32, u64);

    // Managed memory.
    cuMemAllocManaged: (*mut u64, usize, u32);
    cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz: (H, u64, usize, u32);
    cuMemAdvise: (u64, usize, u32, i32);
    cuMemAdvise_v2: (u64, usize, u32, Location);
    cuMemPrefetchAsync cuMemPrefetchAsync_ptsz: (u64, usize, i32, H);
    cuMemPrefetchAsync_v2 cuMemPrefetchAsync_v2_ptsz: (u64, usize, Location, u32, H);
    cuMemRangeGetAttribute: (*mut c_void, usize, u32, u64, usize);
    cuMemRangeGetAttributes: (*mut *mut c_void, *mut usize, *mut u32, usize, u64, usize);
    cuMemPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync_ptsz
        cuMemPrefetchBatchAsync_ptsz: (*mut u64, *mut usize, usize, *mut Location, *mut usize, usize, u64, H);
    cuMemDiscardBatchAsync cuMemDiscardBatchAsync_ptsz: (*mut u64, *mut usize, usize, u64, H);

    // Pools.
    cuMemAllocAsync cuMemAllocAsync_ptsz: (*mut u64, usize, H);
    cuMemFreeAsync cuMemFreeAsync_ptsz: (u64, H);
    cuMemPoolCreate: (*mut H, *const PoolProperties);
    cuMemPoolDestroy: (H);
    cuMemPoolExportToShareableHandle: (*mut c_void, H, u32, u64);
    cuMemPoolImportFromShareableHandle: (*mut H, *mut c_void, u32, u64);
    cuMemPoolExportPointer: (*mut Ipc, u64);
    cuMemPoolImportPointer: (*mut u64, H, *const Ipc);
    cuMemPoolTrimTo: (H, usize);
    cuMemPoolGetAttribute: (H, u32, *mut c_void);
    cuMemPoolSetAttribute: (H, u32, *mut c_void);
    cuMemPoolSetAccess: (H, *const Description, usize);
    cuMemPoolGetAccess: (*mut u32, H, *const Location);
    cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz: (*mut u64, usize, H, H);
    cuDeviceGetDefaultMemPool: (*mut H, i32);
    cuDeviceGetMemPool: (*mut H, i32);
    cuDeviceSetMemPool: (i32, H);
    cuMemGetDefaultMemPool cuMemGetMemPool: (*mut H, *const Location, u32);
    cuMemSetMemPool: (*const Location, u32, H);

    // Virtual memory.
    cuMemAddressReserve: (*mut u64, usize, usize, u64, u64);
    cuMemAddressFree: (u64, usize);
    cuMemCreate: (*mut u64, usize, *const Properties, u64);
    cuMemRelease: (u64);
    cuMemMap: (u64, usize, usize, u64, u64);
    cuMemUnmap: (u64, usize);
    cuMemSetAccess: (u64, usize, *const Description, usize);
    cuMemGetAccess: (*mut u64, *const Location, u64);
    cuMemRetainAllocationHandle: (*mut u64, *mut c_void);
    cuMemGetAllocationGranularity: (*mut usize, *const Properties, u32);
    cuMemGetAllocationPropertiesFromHandle: (*mut Properties, u64);
    cuMemExportToShareableHandle: (*mut c_void, u64, u32, u64);
    cuMemImportFromShareableHandle: (*mut u64, *mut c_void, u32);

    // Sharing by handles.
    cuIpcGetEventHandle: (*mut Ipc, H);
    cuIpcOpenEventHandle: (*mut H, Ipc);
    cuIpcGetMemHandle: (*mut Ipc, u64);
    cuIpcOpenMemHandle_v2 cuIpcOpenMemHandle: (*mut u64, Ipc, u32);
    cuIpcCloseMemHandle: (u64);

    // Copies.
    cuMemcpy cuMemcpy_ptds: (u64, u64, usize);
    cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds: (u64, *const c_void, usize);
    cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds: (*mut c_void, u64, usize);
    cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds: (u64, u64, usize);
    cuMemcpyDtoDAsync_v2 cuMemcpyAsync cuMemcpyAsync_ptsz cuMemcpyDtoDAsync_v2_ptsz: (u64, u64, usize, H);
    cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz: (u64, *const c_void, usize, H);
    cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz: (*mut c_void, u64, usize, H);
    cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy2D_v2_ptds cuMemcpy2DUnaligned_v2_ptds: (*const sys::CUDA_MEMCPY2D);
    cuMemcpy3D_v2 cuMemcpy3D_v2_ptds: (*const sys::CUDA_MEMCPY3D);
    cuMemcpyHtoA_v2 cuMemcpyHtoA_v2_ptds: (H, usize, *const c_void, usize);
    cuMemcpyAtoH_v2 cuMemcpyAtoH_v2_ptds: (*mut c_void, H, usize, usize);
    cuMemcpyDtoA_v2 cuMemcpyDtoA_v2_ptds: (H, usize, u64, usize);
    cuMemcpyAtoD_v2 cuMemcpyAtoD_v2_ptds: (u64, H, usize, usize);
    cuMemcpyAtoA_v2 cuMemcpyAtoA_v2_ptds: (H, usize, H, usize, usize);
    cuMemcpyAtoHAsync_v2 cuMemcpyAtoHAsync_v2_ptsz: (*mut c_void, H, usize, usize, H);
    cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz: (*mut u64, *mut u64, *mut usize, usize, *mut Order, *mut
        usize, usize, H);
    cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz: (usize, *mut c_void, u64, H);
    cuMemcpyPeer cuMemcpyPeer_ptds: (u64, H, u64, H, usize);
    cuMemcpyWithAttributesAsync cuMemcpyWithAttributesAsync_ptsz: (u64, u64, usize, *mut Order, H);
    cuMemcpy3DWithAttributesAsync cuMemcpy3DWithAttributesAsync_ptsz: (*mut c_void, u64, H);
    cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz: (*const sys::CUDA_MEMCPY2D, H);
    cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz: (*const sys::CUDA_MEMCPY3D, H);
    cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz: (usize, *mut c_void, *mut usize, u64, H);
    cuMemcpy3DPeer cuMemcpy3DPeer_ptds: (*const sys::CUDA_MEMCPY3D_PEER);
    cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz: (*const sys::CUDA_MEMCPY3D_PEER, H);
    cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz: (*mut u64, *mut u64, *mut usize, usize, *mut Order, *mut usize,
        usize, *mut usize, H);
    cuMemcpyHtoAAsync_v2 cuMemcpyHtoAAsync_v2_ptsz: (H, usize, *const c_void, usize, H);
    cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz: (u64, H, u64, H, usize, H);

    // Memory sets.
    cuMemsetD8_v2 cuMemsetD8_v2_ptds: (u64, u8, usize);
    cuMemsetD32_v2 cuMemsetD32_v2_ptds: (u64, u32, usize);
    cuMemsetD8Async: (u64, u8, usize, H);
    cuMemsetD8Async_ptsz: (u64, u8, usize, H);
    cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds: (u64, usize, u16, usize, usize);
    cuMemsetD16_v2 cuMemsetD16_v2_ptds: (u64, u16, usize);
    cuMemsetD16Async cuMemsetD16Async_ptsz: (u64, u16, usize, H);
    cuMemsetD32Async cuMemsetD32Async_ptsz: (u64, u32, usize, H);
    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds: (u64, usize, u8, usize, usize);
    cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds: (u64, usize, u32, usize, usize);
    cuMemsetD2D8Async cuMemsetD2D8Async_ptsz: (u64, usize, u8, usize, usize, H);
    cuMemsetD2D16Async cuMemsetD2D16Async_ptsz: (u64, usize, u16, usize, usize, H);
    cuMemsetD2D32Async cuMemsetD2D32Async_ptsz: (u64, usize, u32, usize, usize, H);

    // Arrays, textures and surfaces.
    cuArrayCreate_v2: (*mut H, *const Flat);
    cuArray3DCreate_v2: (*mut H, *const Deep);
    cuArrayDestroy: (H);
    cuArrayGetDescriptor_v2: (*mut Flat, H);
    cuArray3DGetDescriptor_v2: (*mut Deep, H);
    cuMipmappedArrayCreate: (*mut H, *const Deep, u32);
    cuMipmappedArrayGetLevel: (*mut H, H, u32);
    cuMipmappedArrayDestroy: (H);
    cuTexObjectCreate: (*mut u64, *const Resource, *const [u32; 26], *const c_void);
    cuTexObjectDestroy: (u64);
    cuSurfObjectCreate: (*mut u64, *const Resource);
    cuSurfObjectDestroy: (u64);
    cuArrayGetMemoryRequirements: (*mut [u64; 4], H, i32);
    cuArrayGetPlane: (*mut H, H, u32);
    cuArrayGetSparseProperties: (*mut [u64; 8], H);
    cuMipmappedArrayGetMemoryRequirements: (*mut [u64; 4], H, i32);
    cuMipmappedArrayGetSparseProperties: (*mut [u64; 8], H);
    cuSurfObjectGetResourceDesc cuTexObjectGetResourceDesc: (*mut Resource, u64);
    cuTexObjectGetResourceViewDesc: (*mut [u32; 28], u64);
    cuTexObjectGetTextureDesc: (*mut [u32; 26], u64);
    // Texture and surface references.
    cuTexRefCreate: (*mut H);
    cuTexRefDestroy: (H);
    cuTexRefSetArray cuTexRefSetMipmappedArray cuSurfRefSetArray: (H, H, u32);
    cuTexRefSetAddress_v2: (*mut usize, H, u64, usize);
    cuTexRefSetAddress2D_v2 cuTexRefSetAddress2D_v3: (H, *const Flat, u64, usize);
    cuTexRefSetFormat: (H, u32, i32);
    cuTexRefSetAddressMode: (H, i32, u32);
    cuTexRefSetFilterMode cuTexRefSetMipmapFilterMode cuTexRefSetMaxAnisotropy cuTexRefSetFlags: (H, u32);
    cuTexRefSetMipmapLevelBias: (H, f32);
    cuTexRefSetMipmapLevelClamp: (H, f32, f32);
    cuTexRefSetBorderColor: (H, *const f32);
    cuTexRefGetAddress_v2: (*mut u64, H);
    cuTexRefGetArray cuTexRefGetMipmappedArray cuSurfRefGetArray: (*mut H, H);
    cuTexRefGetAddressMode: (*mut u32, H, i32);
    cuTexRefGetFilterMode cuTexRefGetMipmapFilterMode cuTexRefGetFlags: (*mut u32, H);
    cuTexRefGetFormat: (*mut u32, *mut i32, H);
    cuTexRefGetMipmapLevelBias cuTexRefGetBorderColor: (*mut f32, H);
    cuTexRefGetMipmapLevelClamp: (*mut f32, *mut f32, H);
    cuTexRefGetMaxAnisotropy: (*mut i32, H);
    cuParamSetTexRef: (H, i32, H);

    // Streams, events and host functions.
    cuStreamCreate: (*mut H, u32);
    cuStreamDestroy_v2 cuStreamDestroy: (H);
    cuStreamSynchronize cuStreamSynchronize_ptsz: (H);
    cuStreamQuery: (H);
    cuStreamQuery_ptsz: (H);
    cuStreamWaitEvent cuStreamWaitEvent_ptsz: (H, H, u32);
    cuStreamAddCallback cuStreamAddCallback_ptsz: (H, Callback, *mut c_void, u32);
    cuLaunchHostFunc cuLaunchHostFunc_ptsz: (H, HostFn, *mut c_void);
    cuEventCreate: (*mut H, u32);
    cuEventDestroy_v2 cuEventDestroy: (H);
    cuEventRecord cuEventRecord_ptsz: (H, H);
    cuEventQuery: (H);
    cuEventSynchronize: (H);
    cuEventElapsedTime_v2 cuEventElapsedTime: (*mut f32, H, H);
    cuStreamGetAttribute cuStreamGetAttribute_ptsz: (H, u32, *mut [u64; 8]);
    cuStreamSetAttribute cuStreamSetAttribute_ptsz: (H, u32, *const [u64; 8]);
    cuStreamCopyAttributes cuStreamCopyAttributes_ptsz: (H, H);
    cuEventRecordWithFlags cuEventRecordWithFlags_ptsz: (H, H, u32);
    cuStreamGetDevResource cuStreamGetDevResource_ptsz: (H, *mut sys::CUdevResource, u32);
    cuStreamGetGreenCtx: (H, *mut H);
    cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz: (H, *mut H, *mut H);
    cuStreamGetPriority cuStreamGetPriority_ptsz: (H, *mut i32);
    cuStreamCreateWithPriority: (*mut H, u32, i32);
    cuLaunchHostFunc_v2 cuLaunchHostFunc_v2_ptsz: (H, HostFn, *mut c_void, u32);
    cuStreamGetCtx cuStreamGetCtx_ptsz: (H, *mut H);
    cuStreamGetDevice cuStreamGetDevice_ptsz: (H, *mut i32);
    cuStreamGetFlags cuStreamGetFlags_ptsz: (H, *mut u32);
    cuStreamGetId cuStreamGetId_ptsz: (H, *mut u64);

    // Stream memory operations.
    cuStreamWaitValue32_v2 cuStreamWaitValue32 cuStreamWaitValue32_v2_ptsz cuStreamWaitValue32_ptsz: (H, u64, u32, u32);
    cuStreamWaitValue64_v2 cuStreamWaitValue64 cuStreamWaitValue64_v2_ptsz cuStreamWaitValue64_ptsz: (H, u64, u64, u32);
    cuStreamWriteValue32_v2 cuStreamWriteValue32 cuStreamWriteValue32_v2_ptsz cuStreamWriteValue32_ptsz: (H, u64,
        u32, u32);
    cuStreamWriteValue64_v2 cuStreamWriteValue64 cuStreamWriteValue64_v2_ptsz cuStreamWriteValue64_ptsz: (H, u64,
        u64, u32);
    cuStreamBatchMemOp_v2 cuStreamBatchMemOp cuStreamBatchMemOp_v2_ptsz cuStreamBatchMemOp_ptsz: (H, u32, *const
        [u64; 6], u32);

    // Modules, libraries and links.
    cuModuleLoad: (*mut H, *const c_char);
    cuModuleLoadData cuModuleLoadFatBinary: (*mut H, *const c_void);
    cuModuleLoadDataEx: (*mut H, *const c_void, u32, *mut u32, *mut *mut c_void);
    cuModuleUnload: (H);
    cuModuleGetFunction: (*mut H, H, *const c_char);
    cuModuleGetGlobal_v2: (*mut u64, *mut usize, H, *const c_char);
    cuModuleGetFunctionCount: (*mut u32, H);
    cuModuleEnumerateFunctions cuLibraryEnumerateKernels: (*mut H, u32, H);
    cuLibraryLoadData: (*mut H, *const c_void, *mut u32, *mut *mut c_void, u32, *mut u32, *mut *mut c_void, u32);
    cuLibraryUnload: (H);
    cuLibraryGetKernel: (*mut H, H, *const c_char);
    cuLibraryGetKernelCount: (*mut u32, H);
    cuLibraryGetGlobal: (*mut u64, *mut usize, H, *const c_char);
    cuLibraryGetManaged: (*mut u64, *mut usize, H, *const c_char);
    cuLibraryGetModule: (*mut H, H);
    cuLinkCreate_v2 cuLinkCreate: (u32, *mut u32, *mut *mut c_void, *mut H);
    cuLinkAddData_v2 cuLinkAddData: (H, u32, *mut c_void, usize, *const c_char, u32, *mut u32, *mut *mut c_void);
    cuLinkComplete: (H, *mut *mut c_void, *mut usize);
    cuLinkDestroy: (H);
    cuModuleGetTexRef cuModuleGetSurfRef: (*mut H, H, *const c_char);
    cuLibraryGetUnifiedFunction: (*mut H, H, *const c_char);
    cuLibraryLoadFromFile: (*mut H, *const c_char, *mut u32, *mut *mut c_void, u32, *mut u32, *mut *mut c_void, u32);
    cuLinkAddFile_v2 cuLinkAddFile: (H, u32, *const c_char, u32, *mut u32, *mut *mut c_void);
    cuModuleGetLoadingMode: (*mut u32);

    // Functions and launches.
    cuKernelGetFunction: (*mut H, H);
    cuKernelGetAttribute: (*mut i32, u32, H, i32);
    cuKernelSetAttribute: (u32, i32, H, i32);
    cuFuncGetAttribute: (*mut i32, u32, H);
    cuFuncSetAttribute: (H, u32, i32);
    cuFuncGetParamInfo cuKernelGetParamInfo: (H, usize, *mut usize, *mut usize);
    cuFuncGetName cuKernelGetName: (*mut *const c_char, H);
    cuFuncGetModule: (*mut H, H);
    cuLaunchKernel cuLaunchKernel_ptsz: (H, u32, u32, u32, u32, u32, u32, u32, H, *mut *mut c_void, *mut *mut c_void);
    cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz: (H, u32, u32, u32, u32, u32, u32, u32, H, *mut *mut
        c_void);
    cuOccupancyMaxActiveBlocksPerMultiprocessor: (*mut i32, H, i32, usize);
    cuFuncSetBlockShape: (H, i32, i32, i32);
    cuFuncSetSharedSize: (H, u32);
    cuParamSetSize: (H, u32);
    cuParamSeti: (H, i32, u32);
    cuParamSetv: (H, i32, *const c_void, u32);
    cuLaunchGrid: (H, i32, i32);
    cuLaunchGridAsync: (H, i32, i32, H);
    cuOccupancyMaxActiveClusters: (*mut i32, H, *const sys::CUlaunchConfig);
    cuOccupancyMaxPotentialClusterSize: (*mut i32, H, *const sys::CUlaunchConfig);
    cuLaunchKernelEx cuLaunchKernelEx_ptsz: (*const sys::CUlaunchConfig, H, *mut *mut c_void, *mut *mut c_void);
    cuFuncGetParamCount cuKernelGetParamCount: (H, *mut usize);
    cuFuncIsLoaded: (*mut u32, H);
    cuFuncLoad: (H);
    cuFuncSetCacheConfig cuFuncSetSharedMemConfig: (H, u32);
    cuKernelGetLibrary: (*mut H, H);
    cuKernelSetCacheConfig: (H, u32, i32);
    cuLaunch: (H);
    cuOccupancyAvailableDynamicSMemPerBlock: (*mut usize, H, i32, i32);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags: (*mut i32, H, i32, usize, u32);
    cuOccupancyMaxPotentialBlockSize: (*mut i32, *mut i32, H, DynamicSize, usize, i32);
    cuOccupancyMaxPotentialBlockSizeWithFlags: (*mut i32, *mut i32, H, DynamicSize, usize, i32, u32);
    cuParamSetf: (H, i32, f32);

    // Captures.
    cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz: (H, u32);
    cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz: (H, H, *const H, *const [u8; 8], usize, u32);
    cuStreamEndCapture cuStreamEndCapture_ptsz: (H, *mut H);
    cuStreamIsCapturing cuStreamIsCapturing_ptsz: (H, *mut u32);
    cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz: (H, *mut u32, *mut u64, *mut H, *mut *const H, *mut
        usize);
    cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_ptsz: (H, *const H, usize, u32);
    cuThreadExchangeStreamCaptureMode: (*mut u32);
    cuStreamBeginCapture cuStreamBeginCapture_ptsz: (H);
    cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz: (H, *mut u32, *mut u64, *mut H, *mut *const H, *mut
        *const [u8; 8], *mut usize);
    cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz: (H, *mut u32, *mut u64);
    cuStreamUpdateCaptureDependencies_v2 cuStreamUpdateCaptureDependencies_v2_ptsz: (H, *const H, *const [u8; 8],
        usize, u32);

    // Graphs.
    cuGraphCreate: (*mut H, u32);
    cuGraphDestroy: (H);
    cuGraphClone: (*mut H, H);
    cuGraphNodeFindInClone: (*mut H, H, H);
    cuGraphDestroyNode: (H);
    cuGraphNodeGetType: (H, *mut u32);
    cuGraphGetNodes: (H, *mut H, *mut usize);
    cuGraphGetRootNodes: (H, *mut H, *mut usize);
    cuGraphGetEdges: (H, *mut H, *mut H, *mut usize);
    cuGraphNodeGetDependencies: (H, *mut H, *mut usize);
    cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2: (H, *mut H, *mut [u8; 8], *mut usize);
    cuGraphNodeGetDependentNodes: (H, *mut H, *mut usize);
    cuGraphAddDependencies: (H, *const H, *const H, usize);
    cuGraphAddDependencies_v2 cuGraphRemoveDependencies_v2: (H, *const H, *const H, *const [u8; 8], usize);
    cuGraphRemoveDependencies: (H, *const H, *const H, usize);
    cuGraphDebugDotPrint: (H, *const c_char, u32);
    cuGraphConditionalHandleCreate: (*mut u64, H, H, u32, u32);
    cuGraphAddKernelNode_v2: (*mut H, H, *const H, usize, *const sys::CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeGetParams_v2: (H, *mut sys::CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeSetParams_v2: (H, *const sys::CUDA_KERNEL_NODE_PARAMS);
    cuGraphExecKernelNodeSetParams_v2: (H, H, *const sys::CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeGetAttribute: (H, u32, *mut [u64; 8]);
    cuGraphKernelNodeSetAttribute: (H, u32, *const [u64; 8]);
    cuGraphKernelNodeCopyAttributes: (H, H);
    cuGraphAddMemcpyNode: (*mut H, H, *const H, usize, *const sys::CUDA_MEMCPY3D, H);
    cuGraphMemcpyNodeGetParams: (H, *mut sys::CUDA_MEMCPY3D);
    cuGraphExecMemcpyNodeSetParams: (H, H, *const sys::CUDA_MEMCPY3D, H);
    cuGraphAddMemsetNode: (*mut H, H, *const H, usize, *const sys::CUDA_MEMSET_NODE_PARAMS, H);
    cuGraphMemsetNodeGetParams: (H, *mut sys::CUDA_MEMSET_NODE_PARAMS);
    cuGraphExecMemsetNodeSetParams: (H, H, *const sys::CUDA_MEMSET_NODE_PARAMS, H);
    cuGraphAddHostNode: (*mut H, H, *const H, usize, *const sys::CUDA_HOST_NODE_PARAMS);
    cuGraphAddChildGraphNode: (*mut H, H, *const H, usize, H);
    cuGraphChildGraphNodeGetGraph: (H, *mut H);
    cuGraphAddEmptyNode: (*mut H, H, *const H, usize);
    cuGraphAddEventRecordNode: (*mut H, H, *const H, usize, H);
    cuGraphAddEventWaitNode: (*mut H, H, *const H, usize, H);
    cuGraphAddMemAllocNode: (*mut H, H, *const H, usize, *mut sys::CUDA_MEM_ALLOC_NODE_PARAMS);
    cuGraphAddMemFreeNode: (*mut H, H, *const H, usize, u64);
    cuGraphAddBatchMemOpNode: (*mut H, H, *const H, usize, *const sys::CUDA_BATCH_MEM_OP_NODE_PARAMS);
    cuGraphAddNode_v2 cuGraphAddNode_v3: (*mut H, H, *const H, *const [u8; 8], usize, *mut sys::CUgraphNodeParams);
    cuGraphNodeGetParams cuGraphNodeSetParams_v2 cuGraphNodeSetParams: (H, *mut sys::CUgraphNodeParams);
    cuGraphExecNodeSetParams: (H, H, *mut sys::CUgraphNodeParams);
    cuGraphInstantiateWithFlags: (*mut H, H, u64);
    cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz: (*mut H, H, *mut
        sys::CUDA_GRAPH_INSTANTIATE_PARAMS);
    cuGraphLaunch cuGraphLaunch_ptsz: (H, H);
    cuGraphUpload cuGraphUpload_ptsz: (H, H);
    cuGraphExecDestroy: (H);
    cuGraphExecUpdate_v2: (H, H, *mut sys::CUgraphExecUpdateResultInfo);
    cuGraphNodeSetEnabled: (H, H, u32);
    cuGraphNodeGetEnabled: (H, H, *mut u32);
    cuUserObjectCreate: (*mut H, *mut c_void, HostFn, u32, u32);
    cuUserObjectRelease cuUserObjectRetain: (H, u32);
    cuGraphRetainUserObject: (H, H, u32, u32);
    cuDeviceGetGraphMemAttribute: (i32, u32, *mut u64);
    cuDeviceGraphMemTrim: (i32);
    cuDeviceSetGraphMemAttribute: (i32, u32, *const u64);
    cuGraphAddKernelNode: (*mut H, H, *const H, usize, *const sys::CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphKernelNodeGetParams: (H, *mut sys::CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphKernelNodeSetParams: (H, *const sys::CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphExecKernelNodeSetParams: (H, H, *const sys::CUDA_KERNEL_NODE_PARAMS_v1);
    cuGraphAddNode: (*mut H, H, *const H, usize, *mut sys::CUgraphNodeParams);
    cuGraphBatchMemOpNodeGetParams: (H, *mut sys::CUDA_BATCH_MEM_OP_NODE_PARAMS);
    cuGraphBatchMemOpNodeSetParams: (H, *const sys::CUDA_BATCH_MEM_OP_NODE_PARAMS);
    cuGraphExecBatchMemOpNodeSetParams: (H, H, *const sys::CUDA_BATCH_MEM_OP_NODE_PARAMS);
    cuGraphEventRecordNodeGetEvent cuGraphEventWaitNodeGetEvent: (H, *mut H);
    cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeSetEvent: (H, H);
    cuGraphExecChildGraphNodeSetParams cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent: (H, H, H);
    cuGraphExecGetFlags cuGraphNodeGetToolsId: (H, *mut u64);
    cuGraphExecGetId cuGraphGetId cuGraphNodeGetLocalId: (H, *mut u32);
    cuGraphExecHostNodeSetParams: (H, H, *const sys::CUDA_HOST_NODE_PARAMS);
    cuGraphExecUpdate: (H, H, *mut H, *mut u32);
    cuGraphGetEdges_v2: (H, *mut H, *mut H, *mut [u8; 8], *mut usize);
    cuGraphHostNodeGetParams: (H, *mut sys::CUDA_HOST_NODE_PARAMS);
    cuGraphHostNodeSetParams: (H, *const sys::CUDA_HOST_NODE_PARAMS);
    cuGraphInstantiate_v2 cuGraphInstantiate: (*mut H, H, *mut H, *mut c_char, usize);
    cuGraphMemAllocNodeGetParams: (H, *mut sys::CUDA_MEM_ALLOC_NODE_PARAMS);
    cuGraphMemFreeNodeGetParams: (H, *mut u64);
    cuGraphMemcpyNodeSetParams: (H, *const sys::CUDA_MEMCPY3D);
    cuGraphMemsetNodeSetParams: (H, *const sys::CUDA_MEMSET_NODE_PARAMS);
    cuGraphNodeGetContainingGraph: (H, *mut H);
    cuGraphReleaseUserObject: (H, H, u32);
}

//! The built library, opened as a program opens it, with the prototypes that the tests use.
#![allow(dead_code, non_snake_case, reason = "each test file uses a part; the names are CUDA's")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one note for all: the tests call a C interface with good arguments"
)]

pub mod images;
pub mod peer;

pub use cudarc::driver::sys::CUresult::*;
pub use cudarc::driver::sys::{self, CUresult};
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Every handle.
pub type H = usize;
pub type HostFn = extern "C" fn(*mut c_void);
pub type Callback = extern "C" fn(H, CUresult, *mut c_void);

/// `CUmemLocation`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// Device memory of an ordinal.
pub fn on_device(id: i32) -> Location {
    Location { kind: 1, id }
}

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Properties {
    pub kind: u32,
    pub handles: u32,
    pub location: Location,
    pub windows: usize,
    pub flags: u64,
}

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Description {
    pub location: Location,
    pub flags: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct Flat {
    pub width: usize,
    pub height: usize,
    pub format: u32,
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct Deep {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

/// `CUDA_RESOURCE_DESC`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Resource {
    pub kind: u32,
    pub words: [u64; 16],
    pub flags: u32,
}

/// `CUmemcpyAttributes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Order {
    pub order: u32,
    pub places: [Location; 2],
    pub flags: u32,
}

/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Ipc(pub [u8; 64]);

impl Ipc {
    /// As text, for another process.
    pub fn to_text(self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// From [`Ipc::to_text`].
    pub fn from_text(text: &str) -> Ipc {
        Ipc(std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex")))
    }
}

/// `CUmemPoolProps`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PoolProperties {
    pub kind: u32,
    pub handles: u32,
    pub location: Location,
    pub security: usize,
    pub most: usize,
    pub rest: [u64; 7],
}

macro_rules! api {
    ($($name:ident($($argument:ty),*);)*) => {
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> CUresult,)*
        }

        impl Api {
            fn load() -> Api {
                unsafe {
                    let library = libloading::Library::new(path()).expect("the library can be opened");
                    let api = Api {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes()).expect(stringify!($name)),)*
                    };
                    std::mem::forget(library);
                    api
                }
            }
        }
    };
}

api! {
    cuInit(u32);
    cuDriverGetVersion(*mut i32);
    cuDeviceGetCount(*mut i32);
    cuDeviceGetAttribute(*mut i32, u32, i32);
    cuGetErrorName(u32, *mut *const c_char);
    cuGetProcAddress_v2(*const c_char, *mut *mut c_void, i32, u64, *mut u32);
    cuGetExportTable(*mut *const c_void, *const c_void);
    cuCtxCreate_v2(*mut H, u32, i32);
    cuCtxDestroy_v2(H);
    cuCtxSetCurrent(H);
    cuCtxGetCurrent(*mut H);
    cuCtxPushCurrent_v2(H);
    cuCtxPopCurrent_v2(*mut H);
    cuCtxGetDevice(*mut i32);
    cuCtxSynchronize();
    cuCtxGetLimit(*mut usize, u32);
    cuCtxSetLimit(u32, usize);
    cuDevicePrimaryCtxRetain(*mut H, i32);
    cuDevicePrimaryCtxRelease_v2(i32);
    cuDevicePrimaryCtxReset_v2(i32);
    cuDevicePrimaryCtxGetState(i32, *mut u32, *mut i32);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemAllocManaged(*mut u64, usize, u32);
    cuMemAllocPitch_v2(*mut u64, *mut usize, usize, usize, u32);
    cuMemFree_v2(u64);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemGetAddressRange_v2(*mut u64, *mut usize, u64);
    cuMemHostAlloc(*mut *mut c_void, usize, u32);
    cuMemFreeHost(*mut c_void);
    cuMemHostRegister_v2(*mut c_void, usize, u32);
    cuMemHostUnregister(*mut c_void);
    cuMemHostGetDevicePointer_v2(*mut u64, *mut c_void, u32);
    cuMemAllocAsync(*mut u64, usize, H);
    cuMemFreeAsync(u64, H);
    cuMemcpy(u64, u64, usize);
    cuMemcpyHtoD_v2(u64, *const c_void, usize);
    cuMemcpyDtoH_v2(*mut c_void, u64, usize);
    cuMemcpyDtoD_v2(u64, u64, usize);
    cuMemcpyDtoDAsync_v2(u64, u64, usize, H);
    cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, H);
    cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, H);
    cuMemcpy2D_v2(*const cudarc::driver::sys::CUDA_MEMCPY2D);
    cuMemcpy3D_v2(*const cudarc::driver::sys::CUDA_MEMCPY3D);
    cuMemsetD8_v2(u64, u8, usize);
    cuMemsetD32_v2(u64, u32, usize);
    cuMemsetD8Async(u64, u8, usize, H);
    cuMemsetD8Async_ptsz(u64, u8, usize, H);
    cuMemsetD2D16_v2(u64, usize, u16, usize, usize);
    cuPointerGetAttribute(*mut c_void, u32, u64);
    cuPointerGetAttributes(u32, *mut u32, *mut *mut c_void, u64);
    cuStreamCreate(*mut H, u32);
    cuStreamDestroy_v2(H);
    cuStreamSynchronize(H);
    cuStreamQuery(H);
    cuStreamQuery_ptsz(H);
    cuStreamWaitEvent(H, H, u32);
    cuStreamAddCallback(H, Callback, *mut c_void, u32);
    cuLaunchHostFunc(H, HostFn, *mut c_void);
    cuEventCreate(*mut H, u32);
    cuEventDestroy_v2(H);
    cuEventRecord(H, H);
    cuEventQuery(H);
    cuEventSynchronize(H);
    cuEventElapsedTime_v2(*mut f32, H, H);
    cuModuleLoad(*mut H, *const c_char);
    cuModuleLoadData(*mut H, *const c_void);
    cuModuleLoadDataEx(*mut H, *const c_void, u32, *mut u32, *mut *mut c_void);
    cuModuleUnload(H);
    cuModuleGetFunction(*mut H, H, *const c_char);
    cuModuleGetGlobal_v2(*mut u64, *mut usize, H, *const c_char);
    cuModuleGetFunctionCount(*mut u32, H);
    cuModuleEnumerateFunctions(*mut H, u32, H);
    cuLibraryLoadData(*mut H, *const c_void, *mut u32, *mut *mut c_void, u32, *mut u32, *mut *mut c_void, u32);
    cuLibraryUnload(H);
    cuLibraryGetKernel(*mut H, H, *const c_char);
    cuLibraryGetKernelCount(*mut u32, H);
    cuLibraryGetGlobal(*mut u64, *mut usize, H, *const c_char);
    cuLibraryGetManaged(*mut u64, *mut usize, H, *const c_char);
    cuLibraryGetModule(*mut H, H);
    cuKernelGetFunction(*mut H, H);
    cuKernelGetAttribute(*mut i32, u32, H, i32);
    cuKernelSetAttribute(u32, i32, H, i32);
    cuFuncGetAttribute(*mut i32, u32, H);
    cuFuncSetAttribute(H, u32, i32);
    cuFuncGetParamInfo(H, usize, *mut usize, *mut usize);
    cuFuncGetName(*mut *const c_char, H);
    cuFuncGetModule(*mut H, H);
    cuLaunchKernel(H, u32, u32, u32, u32, u32, u32, u32, H, *mut *mut c_void, *mut *mut c_void);
    cuLaunchCooperativeKernel(H, u32, u32, u32, u32, u32, u32, u32, H, *mut *mut c_void);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut i32, H, i32, usize);
    cuLinkCreate_v2(u32, *mut u32, *mut *mut c_void, *mut H);
    cuLinkAddData_v2(H, u32, *mut c_void, usize, *const c_char, u32, *mut u32, *mut *mut c_void);
    cuLinkComplete(H, *mut *mut c_void, *mut usize);
    cuLinkDestroy(H);
    cuArrayCreate_v2(*mut H, *const Flat);
    cuArray3DCreate_v2(*mut H, *const Deep);
    cuArrayDestroy(H);
    cuArrayGetDescriptor_v2(*mut Flat, H);
    cuArray3DGetDescriptor_v2(*mut Deep, H);
    cuMipmappedArrayCreate(*mut H, *const Deep, u32);
    cuMipmappedArrayGetLevel(*mut H, H, u32);
    cuMipmappedArrayDestroy(H);
    cuMemcpyHtoA_v2(H, usize, *const c_void, usize);
    cuMemcpyAtoH_v2(*mut c_void, H, usize, usize);
    cuMemcpyDtoA_v2(H, usize, u64, usize);
    cuMemcpyAtoD_v2(u64, H, usize, usize);
    cuMemcpyAtoA_v2(H, usize, H, usize, usize);
    cuMemcpyAtoHAsync_v2(*mut c_void, H, usize, usize, H);
    cuMemcpyBatchAsync_v2(*mut u64, *mut u64, *mut usize, usize, *mut Order, *mut usize, usize, H);
    cuMemcpy3DBatchAsync_v2(usize, *mut c_void, u64, H);
    cuTexObjectCreate(*mut u64, *const Resource, *const [u32; 26], *const c_void);
    cuTexObjectDestroy(u64);
    cuSurfObjectCreate(*mut u64, *const Resource);
    cuSurfObjectDestroy(u64);
    cuIpcGetEventHandle(*mut Ipc, H);
    cuIpcOpenEventHandle(*mut H, Ipc);
    cuIpcGetMemHandle(*mut Ipc, u64);
    cuIpcOpenMemHandle_v2(*mut u64, Ipc, u32);
    cuIpcCloseMemHandle(u64);
    cuDeviceCanAccessPeer(*mut i32, i32, i32);
    cuDeviceGetP2PAttribute(*mut i32, u32, i32, i32);
    cuCtxEnablePeerAccess(H, u32);
    cuCtxDisablePeerAccess(H);
    cuMemcpyPeer(u64, H, u64, H, usize);
    cuMemPoolCreate(*mut H, *const PoolProperties);
    cuMemPoolDestroy(H);
    cuMemPoolExportToShareableHandle(*mut c_void, H, u32, u64);
    cuMemPoolImportFromShareableHandle(*mut H, *mut c_void, u32, u64);
    cuMemPoolExportPointer(*mut Ipc, u64);
    cuMemPoolImportPointer(*mut u64, H, *const Ipc);
    cuMemPoolTrimTo(H, usize);
    cuMemPoolGetAttribute(H, u32, *mut c_void);
    cuMemPoolSetAttribute(H, u32, *mut c_void);
    cuMemPoolSetAccess(H, *const Description, usize);
    cuMemPoolGetAccess(*mut u32, H, *const Location);
    cuMemAllocFromPoolAsync(*mut u64, usize, H, H);
    cuDeviceGetDefaultMemPool(*mut H, i32);
    cuDeviceGetMemPool(*mut H, i32);
    cuDeviceSetMemPool(i32, H);
    cuMemHostGetFlags(*mut u32, *mut c_void);
    cuPointerSetAttribute(*const c_void, u32, u64);
    cuStreamAttachMemAsync(H, u64, usize, u32);
    cuMemAdvise(u64, usize, u32, i32);
    cuMemAdvise_v2(u64, usize, u32, Location);
    cuMemPrefetchAsync(u64, usize, i32, H);
    cuMemPrefetchAsync_v2(u64, usize, Location, u32, H);
    cuMemRangeGetAttribute(*mut c_void, usize, u32, u64, usize);
    cuMemRangeGetAttributes(*mut *mut c_void, *mut usize, *mut u32, usize, u64, usize);
    cuMemAddressReserve(*mut u64, usize, usize, u64, u64);
    cuMemAddressFree(u64, usize);
    cuMemCreate(*mut u64, usize, *const Properties, u64);
    cuMemRelease(u64);
    cuMemMap(u64, usize, usize, u64, u64);
    cuMemUnmap(u64, usize);
    cuMemSetAccess(u64, usize, *const Description, usize);
    cuMemGetAccess(*mut u64, *const Location, u64);
    cuMemRetainAllocationHandle(*mut u64, *mut c_void);
    cuMemGetAllocationGranularity(*mut usize, *const Properties, u32);
    cuMemGetAllocationPropertiesFromHandle(*mut Properties, u64);
    cuMemExportToShareableHandle(*mut c_void, u64, u32, u64);
    cuMemImportFromShareableHandle(*mut u64, *mut c_void, u32);
    cuStreamBeginCapture_v2(H, u32);
    cuStreamBeginCaptureToGraph(H, H, *const H, *const [u8; 8], usize, u32);
    cuStreamEndCapture(H, *mut H);
    cuStreamIsCapturing(H, *mut u32);
    cuStreamGetCaptureInfo_v2(H, *mut u32, *mut u64, *mut H, *mut *const H, *mut usize);
    cuStreamUpdateCaptureDependencies(H, *const H, usize, u32);
    cuThreadExchangeStreamCaptureMode(*mut u32);
    cuStreamWaitValue32_v2(H, u64, u32, u32);
    cuStreamWaitValue64_v2(H, u64, u64, u32);
    cuStreamWriteValue32_v2(H, u64, u32, u32);
    cuStreamWriteValue64_v2(H, u64, u64, u32);
    cuStreamBatchMemOp_v2(H, u32, *const [u64; 6], u32);
    cuStreamGetAttribute(H, u32, *mut [u64; 8]);
    cuStreamSetAttribute(H, u32, *const [u64; 8]);
    cuStreamCopyAttributes(H, H);
    cuEventRecordWithFlags(H, H, u32);
    cuGraphCreate(*mut H, u32);
    cuGraphDestroy(H);
    cuGraphClone(*mut H, H);
    cuGraphNodeFindInClone(*mut H, H, H);
    cuGraphDestroyNode(H);
    cuGraphNodeGetType(H, *mut u32);
    cuGraphGetNodes(H, *mut H, *mut usize);
    cuGraphGetRootNodes(H, *mut H, *mut usize);
    cuGraphGetEdges(H, *mut H, *mut H, *mut usize);
    cuGraphNodeGetDependencies(H, *mut H, *mut usize);
    cuGraphNodeGetDependencies_v2(H, *mut H, *mut [u8; 8], *mut usize);
    cuGraphNodeGetDependentNodes(H, *mut H, *mut usize);
    cuGraphAddDependencies(H, *const H, *const H, usize);
    cuGraphAddDependencies_v2(H, *const H, *const H, *const [u8; 8], usize);
    cuGraphRemoveDependencies(H, *const H, *const H, usize);
    cuGraphDebugDotPrint(H, *const c_char, u32);
    cuGraphConditionalHandleCreate(*mut u64, H, H, u32, u32);
    cuGraphAddKernelNode_v2(*mut H, H, *const H, usize, *const sys::CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeGetParams_v2(H, *mut sys::CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeSetParams_v2(H, *const sys::CUDA_KERNEL_NODE_PARAMS);
    cuGraphExecKernelNodeSetParams_v2(H, H, *const sys::CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeGetAttribute(H, u32, *mut [u64; 8]);
    cuGraphKernelNodeSetAttribute(H, u32, *const [u64; 8]);
    cuGraphKernelNodeCopyAttributes(H, H);
    cuGraphAddMemcpyNode(*mut H, H, *const H, usize, *const sys::CUDA_MEMCPY3D, H);
    cuGraphMemcpyNodeGetParams(H, *mut sys::CUDA_MEMCPY3D);
    cuGraphExecMemcpyNodeSetParams(H, H, *const sys::CUDA_MEMCPY3D, H);
    cuGraphAddMemsetNode(*mut H, H, *const H, usize, *const sys::CUDA_MEMSET_NODE_PARAMS, H);
    cuGraphMemsetNodeGetParams(H, *mut sys::CUDA_MEMSET_NODE_PARAMS);
    cuGraphExecMemsetNodeSetParams(H, H, *const sys::CUDA_MEMSET_NODE_PARAMS, H);
    cuGraphAddHostNode(*mut H, H, *const H, usize, *const sys::CUDA_HOST_NODE_PARAMS);
    cuGraphAddChildGraphNode(*mut H, H, *const H, usize, H);
    cuGraphChildGraphNodeGetGraph(H, *mut H);
    cuGraphAddEmptyNode(*mut H, H, *const H, usize);
    cuGraphAddEventRecordNode(*mut H, H, *const H, usize, H);
    cuGraphAddEventWaitNode(*mut H, H, *const H, usize, H);
    cuGraphAddMemAllocNode(*mut H, H, *const H, usize, *mut sys::CUDA_MEM_ALLOC_NODE_PARAMS);
    cuGraphAddMemFreeNode(*mut H, H, *const H, usize, u64);
    cuGraphAddBatchMemOpNode(*mut H, H, *const H, usize, *const sys::CUDA_BATCH_MEM_OP_NODE_PARAMS);
    cuGraphAddNode_v2(*mut H, H, *const H, *const [u8; 8], usize, *mut sys::CUgraphNodeParams);
    cuGraphNodeGetParams(H, *mut sys::CUgraphNodeParams);
    cuGraphExecNodeSetParams(H, H, *mut sys::CUgraphNodeParams);
    cuGraphInstantiateWithFlags(*mut H, H, u64);
    cuGraphInstantiateWithParams(*mut H, H, *mut sys::CUDA_GRAPH_INSTANTIATE_PARAMS);
    cuGraphLaunch(H, H);
    cuGraphUpload(H, H);
    cuGraphExecDestroy(H);
    cuGraphExecUpdate_v2(H, H, *mut sys::CUgraphExecUpdateResultInfo);
    cuGraphNodeSetEnabled(H, H, u32);
    cuGraphNodeGetEnabled(H, H, *mut u32);
    cuUserObjectCreate(*mut H, *mut c_void, HostFn, u32, u32);
    cuUserObjectRelease(H, u32);
    cuGraphRetainUserObject(H, H, u32, u32);
    cuDeviceGetGraphMemAttribute(i32, u32, *mut u64);
    cuMemAlloc();
    cuDeviceGetDevResource(i32, *mut sys::CUdevResource, u32);
    cuCtxGetDevResource(H, *mut sys::CUdevResource, u32);
    cuGreenCtxGetDevResource(H, *mut sys::CUdevResource, u32);
    cuStreamGetDevResource(H, *mut sys::CUdevResource, u32);
    cuDevSmResourceSplitByCount(
        *mut sys::CUdevResource, *mut u32, *const sys::CUdevResource, *mut sys::CUdevResource, u32, u32
    );
    cuDevSmResourceSplit(
        *mut sys::CUdevResource, u32, *const sys::CUdevResource, *mut sys::CUdevResource, u32, *mut [u32; 16]
    );
    cuDevResourceGenerateDesc(*mut H, *const sys::CUdevResource, u32);
    cuGreenCtxCreate(*mut H, H, i32, u32);
    cuGreenCtxDestroy(H);
    cuGreenCtxGetId(H, *mut u64);
    cuGreenCtxStreamCreate(*mut H, H, u32, i32);
    cuGreenCtxRecordEvent(H, H);
    cuGreenCtxWaitEvent(H, H);
    cuCtxFromGreenCtx(*mut H, H);
    cuStreamGetGreenCtx(H, *mut H);
    cuStreamGetCtx_v2(H, *mut H, *mut H);
    cuStreamGetPriority(H, *mut i32);
    cuStreamCreateWithPriority(*mut H, u32, i32);
    cuCtxGetStreamPriorityRange(*mut i32, *mut i32);
    cuCtxRecordEvent(H, H);
    cuCtxWaitEvent(H, H);
    cuCtxAttach(*mut H, u32);
    cuCtxDetach(H);
    cuCtxGetExecAffinity(*mut c_void, u32);
    cuFuncSetBlockShape(H, i32, i32, i32);
    cuFuncSetSharedSize(H, u32);
    cuParamSetSize(H, u32);
    cuParamSeti(H, i32, u32);
    cuParamSetv(H, i32, *const c_void, u32);
    cuLaunchGrid(H, i32, i32);
    cuLaunchGridAsync(H, i32, i32, H);
    cuOccupancyMaxActiveClusters(*mut i32, H, *const sys::CUlaunchConfig);
    cuOccupancyMaxPotentialClusterSize(*mut i32, H, *const sys::CUlaunchConfig);
    cuDeviceGetHostAtomicCapabilities(*mut u32, *const u32, u32, i32);
    cuDeviceGetP2PAtomicCapabilities(*mut u32, *const u32, u32, i32, i32);
    cuDeviceGetTexture1DLinearMaxWidth(*mut usize, u32, u32, i32);
    cuDeviceRegisterAsyncNotification(i32, *const c_void, *mut c_void, *mut H);
    cuDeviceUnregisterAsyncNotification(i32, H);
    cuModuleGetTexRef(*mut H, H, *const c_char);
    cuLibraryGetUnifiedFunction(*mut H, H, *const c_char);
    cuMemcpyWithAttributesAsync(u64, u64, usize, *mut Order, H);
    cuMemcpy3DWithAttributesAsync(*mut c_void, u64, H);
    cuMemPrefetchBatchAsync(*mut u64, *mut usize, usize, *mut Location, *mut usize, usize, u64, H);
    cuMemDiscardBatchAsync(*mut u64, *mut usize, usize, u64, H);
    cuLaunchKernelEx(*const sys::CUlaunchConfig, H, *mut *mut c_void, *mut *mut c_void);
}

/// Where cargo puts the library that it builds for the tests: beside the test's own program.
fn path() -> PathBuf {
    std::env::current_exe().expect("a path").with_file_name("libsoftcuda.so")
}

/// Names the directory that processes of one test share devices by.
pub const SHARED_STATE: &str = "SOFTCUDA_TEST_STATE";

/// The library, initialised.
pub fn api() -> &'static Api {
    static API: OnceLock<Api> = OnceLock::new();
    API.get_or_init(|| {
        // Devices of this process's own, since tests of several processes run at once, or those of a test that shares them.
        let own = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("state-{}", std::process::id()));
        let state = std::env::var_os(SHARED_STATE).map_or_else(own, PathBuf::from);
        unsafe { std::env::set_var("SOFTCUDA_STATE", state) };
        let api = Api::load();
        assert_eq!(unsafe { (api.cuInit)(0) }, CUDA_SUCCESS);
        api
    })
}

/// Calls a function of the library: `cu!(cuInit(0))`.
macro_rules! cu {
    ($name:ident($($argument:expr),* $(,)?)) => {
        unsafe { ($crate::api::api().$name)($($argument),*) }
    };
}

/// Calls a function that must succeed.
macro_rules! ok {
    ($name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!($crate::cu!($name($($argument),*)), $crate::api::CUDA_SUCCESS, stringify!($name))
    };
}

pub(crate) use {cu, ok};

/// A context of the test's own, current in the test's thread, destroyed in the end.
pub struct Context(pub H);

pub fn context() -> Context {
    let mut context = 0;
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    Context(context)
}

impl Drop for Context {
    fn drop(&mut self) {
        cu!(cuCtxDestroy_v2(self.0));
    }
}

/// Whether the system tells of single mappings (Linux 6.11 and later), without which the driver does not look what is where.
pub fn mappings_are_told() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release.split(['.', '-']).map(|n| n.trim().parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

/// Device memory of some bytes.
pub fn alloc(bytes: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, bytes));
    address
}

/// The bytes at a device address.
pub fn read(address: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0u8; bytes];
    ok!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), address, bytes));
    out
}

/// A stream.
pub fn stream(flags: u32) -> H {
    let mut stream = 0;
    ok!(cuStreamCreate(&mut stream, flags));
    stream
}

/// An event.
pub fn event(flags: u32) -> H {
    let mut event = 0;
    ok!(cuEventCreate(&mut event, flags));
    event
}

/// A module of PTX text.
pub fn module(ptx: &str) -> H {
    let text = std::ffi::CString::new(ptx).expect("no zero");
    let mut module = 0;
    ok!(cuModuleLoadData(&mut module, text.as_ptr().cast()));
    module
}

/// A function of a module.
pub fn function(module: H, name: &str) -> H {
    let name = std::ffi::CString::new(name).expect("no zero");
    let mut function = 0;
    ok!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

/// Launches with parameters of 8 bytes each, in blocks of x.
pub fn launch(function: H, blocks: u32, threads: u32, stream: H, parameters: &[u64]) -> CUresult {
    let mut pointers: Vec<*mut c_void> =
        parameters.iter().map(|p| std::ptr::from_ref(p).cast_mut().cast()).collect();
    // CUDA takes a null array for no parameters.
    let values = if pointers.is_empty() { std::ptr::null_mut() } else { pointers.as_mut_ptr() };
    cu!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, values, std::ptr::null_mut()))
}

/// A module of one kernel, `move(to, from)`: `*to = *from` for 32-bit words.
pub const MOVE: &str = ".version 8.0 .target sm_80 .address_size 64
.visible .entry move(.param .u64 o, .param .u64 i) { .reg .b64 %a; .reg .b64 %b; .reg .b32 %v;
ld.param.u64 %a, [o]; ld.param.u64 %b, [i]; ld.global.u32 %v, [%b]; st.global.u32 [%a], %v; ret; }";

/// The result of `*to = *from` by a kernel on a device, in a context of its own that an error ends.
pub fn move_on(device: i32, to: u64, from: u64) -> CUresult {
    let mut context = 0;
    ok!(cuCtxCreate_v2(&mut context, 0, device));
    let context = Context(context);
    let function = function(module(MOVE), "move");
    assert_eq!(launch(function, 1, 1, 0, &[to, from]), CUDA_SUCCESS);
    let result = cu!(cuCtxSynchronize());
    drop(context);
    result
}

/// Runs a test of this file, `name`, again in a process of its own with these variables set; there it does `body`.
pub fn in_child(name: &str, variables: &[(&str, &str)], input: std::process::Stdio, body: impl FnOnce()) {
    const MARK: &str = "SOFTCUDA_TEST_CHILD";
    if std::env::var(MARK).is_ok_and(|child| child == name) {
        return body();
    }
    let me = std::env::current_exe().expect("a path");
    let mut command = std::process::Command::new(me);
    command.args([name, "--exact", "--nocapture"]).env(MARK, name).envs(variables.iter().copied());
    assert!(command.stdin(input).status().expect("the child runs").success());
}

/// Kernels for the tests.
pub const PTX: &str = include_str!("kernels.ptx");

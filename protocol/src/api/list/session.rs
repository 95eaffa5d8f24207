//! Start, versions, entry points, devices; and what the session says to itself.

macro_rules! list_session {
    ([$next:ident $($rest:ident)*] $($list:tt)*) => { $next! { [$($rest)*] $($list)*

/// Starts the session. Flags must be 0.
local cuInit(flags: u32);
/// The pool's driver version, before `cuInit` by the version probe.
local cuDriverGetVersion(version: *mut i32);
local cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64);
local cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64, status: *mut u32);
local cuGetExportTable(table: *mut *const c_void, id: *const CUuuid);
local cuGetErrorName(error: u32, text: *mut *const c_char);
local cuGetErrorString(error: u32, text: *mut *const c_char);
local cuModuleGetLoadingMode(mode: *mut u32);

local cuDeviceGetCount(count: *mut i32);
local cuDeviceGet(device: *mut i32, ordinal: i32);
local cuDeviceGetName(name: *mut c_char, len: i32, device: i32);
local cuDeviceGetUuid(uuid: *mut CUuuid, device: i32);
local cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: i32);
local cuDeviceTotalMem_v2(bytes: *mut usize, device: i32);
local cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32);
local cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32);
local cuDeviceGetPCIBusId(id: *mut c_char, len: i32, device: i32);
local cuDeviceGetByPCIBusId(device: *mut i32, id: *const c_char);
local cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32);
local cuDeviceGetP2PAttribute(value: *mut i32, attribute: u32, source: i32, destination: i32);

/// A piece of a large input (an image, a link's inputs). The client numbers its parcels from 1; a parcel is taken by the
/// call that names it. Pieces come in order.
1 post(hand) record parcel_put(parcel: u64, offset: u64, total: u64, bytes: BulkIn);
/// A piece of a large answer; the last piece ends the parcel.
2 call(hand) record parcel_get(parcel: u64, offset: u64, piece: Back<Vec<u8>>);
/// Takes what kernels have printed, as far as it fits one answer. `stream` is the file descriptor that it belongs on: 1, or 2 for
/// what failed assertions say.
3 call(hand) record take_output(stream: Back<u32>, text: Back<Vec<u8>>);
/// A host function that the completion board queued has returned.
4 post(hand) record callback_done(callback: u64);
/// A client thread has ended: what the worker keeps for its lane can go.
5 post(hand) record lane_end();

    }};
}

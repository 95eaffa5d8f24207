//! Primary and created contexts, the current one, limits.

macro_rules! list_context {
    ([$next:ident $($rest:ident)*] $($list:tt)*) => { $next! { [$($rest)*] $($list)*

/// Names a device's primary context without retaining it.
100 post(hand) record primary_name(context: New<Context>, device: i32);
101 call(slow, hand) record primary_retain(context: Context, device: i32);
102 call(slow, hand) record primary_release(context: Context, device: i32);
103 call(slow, hand) record primary_reset(context: Context, device: i32);
104 call(hand) record primary_state(device: i32, flags: Out<u32>, active: Out<i32>);
105 call(hand) record primary_set_flags(device: i32, flags: u32);
106 call(slow, hand) record context_create(context: New<Context>, flags: u32, device: i32);
107 call(slow, hand) record context_destroy(context: Delete<Context>);

hand call cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: i32) using primary_name, primary_retain;
hand call cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease(device: i32) using primary_release;
hand call cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset(device: i32) using primary_reset;
hand call cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) using primary_set_flags;
local cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32);
hand call cuCtxCreate_v2(context: *mut CUcontext, flags: u32, device: i32) using context_create;
hand call cuCtxCreate_v3(context: *mut CUcontext, affinity: *mut c_void, count: i32, flags: u32, device: i32) using context_create;
hand call cuCtxCreate_v4(context: *mut CUcontext, params: *mut c_void, flags: u32, device: i32) using context_create;
hand call cuCtxDestroy_v2, cuCtxDestroy(context: CUcontext) using context_destroy;
local cuCtxPushCurrent_v2, cuCtxPushCurrent(context: CUcontext);
local cuCtxPopCurrent_v2, cuCtxPopCurrent(context: *mut CUcontext);
local cuCtxSetCurrent(context: CUcontext);
local cuCtxGetCurrent(context: *mut CUcontext);
local cuCtxGetDevice(device: *mut i32);
local cuCtxGetDevice_v2(device: *mut i32, context: CUcontext);
local cuCtxGetFlags(flags: *mut u32);
local cuCtxGetId(context: CUcontext, id: *mut u64);
local cuCtxGetApiVersion(context: CUcontext, version: *mut u32);
110 call cuCtxGetLimit(value: Out<usize>, limit: Within<0, 7>);
111 call(slow) cuCtxSetLimit(limit: Within<0, 7>, value: usize);
112 call cuCtxGetCacheConfig(config: Out<u32>);
113 call cuCtxSetCacheConfig(config: Within<0, 3>);
114 call cuCtxGetStreamPriorityRange(least: OptOut<i32>, greatest: OptOut<i32>);
115 call(slow) cuCtxResetPersistingL2Cache();

    }};
}

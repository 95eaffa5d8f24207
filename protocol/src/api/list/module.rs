//! Modules, libraries, kernels, the linker, occupancy.

macro_rules! list_module {
    ([$next:ident $($rest:ident)*] $($list:tt)*) => { $next! { [$($rest)*] $($list)*

/// Loads the parcel `image` into the current context. `options` are the JIT options that are numbers. The answer says how
/// long the parcel `contents` is (an [`crate::image::Contents`]: kernels with parameter layouts and attributes, globals, JIT logs);
/// it is there on failure too, for the logs. `result` is the load's own CUresult.
400 call(slow, hand) record module_load(module: New<Module>, image: u64, options: Value<Vec<u8>>, result: Out<i32>, contents: Out<u64>, length: Out<u64>);
401 call(slow, hand) record module_unload(module: Delete<Module>);
/// As `module_load`; libraries belong to no context.
402 call(slow, hand) record library_load(library: New<Library>, image: u64, options: Value<Vec<u8>>, result: Out<i32>, contents: Out<u64>, length: Out<u64>);
403 call(slow, hand) record library_unload(library: Delete<Library>);
/// Names the kernel at `index` of the contents of a module.
404 post(hand) record module_function(function: New<Function>, module: Module, index: u32);
/// Names the kernel at `index` of the contents of a library.
405 post(hand) record library_kernel(kernel: New<Function>, library: Library, index: u32);
/// The module of a library in the current context.
406 post(hand) record library_module(module: New<Module>, library: Library);
/// Address and size of a variable in the current context.
407 call(hand) record module_global(module: Module, name: Value<String>, address: Out<u64>, size: Out<u64>);
408 call(hand) record library_global(library: Library, name: Value<String>, address: Out<u64>, size: Out<u64>);
409 call(hand) record function_get_attribute(function: Function, attribute: u32, device: i32, value: Out<i32>);
410 call(hand) record function_set_attribute(function: Function, attribute: u32, value: i32, device: i32);
411 call(hand) record function_set_cache(function: Function, config: u32, device: i32);
/// Links the inputs of the parcel (an [`crate::image::LinkInputs`]); the answer is the parcel `product` (an
/// [`crate::image::LinkProduct`]: image and logs). `result` is the link's own CUresult.
412 call(slow, hand) record link(inputs: u64, result: Out<i32>, product: Out<u64>, length: Out<u64>);
/// Ends the handle of a kernel whose module or library is about to be unloaded, so that its place is used again.
413 post(hand) record function_end(function: Delete<Function>);

hand call cuModuleLoad(module: *mut CUmodule, path: *const c_char) using module_load, parcel_put, parcel_get;
hand call cuModuleLoadData(module: *mut CUmodule, image: *const c_void) using module_load, parcel_put, parcel_get;
hand call cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut u32, values: *mut *mut c_void) using module_load, parcel_put, parcel_get;
hand call cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) using module_load, parcel_put, parcel_get;
hand call cuModuleUnload(module: CUmodule) using module_unload;
hand post cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) using module_function;
hand call cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char) using module_global;
local cuModuleGetFunctionCount(count: *mut u32, module: CUmodule);
hand post cuModuleEnumerateFunctions(functions: *mut CUfunction, count: u32, module: CUmodule) using module_function;
hand call cuLibraryLoadData(library: *mut CUlibrary, image: *const c_void, options: *mut u32, values: *mut *mut c_void, count: u32, library_options: *mut u32, library_values: *mut *mut c_void, library_count: u32) using library_load, parcel_put, parcel_get;
hand call cuLibraryLoadFromFile(library: *mut CUlibrary, path: *const c_char, options: *mut u32, values: *mut *mut c_void, count: u32, library_options: *mut u32, library_values: *mut *mut c_void, library_count: u32) using library_load, parcel_put, parcel_get;
hand call cuLibraryUnload(library: CUlibrary) using library_unload;
hand post cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) using library_kernel;
local cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary);
hand post cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: u32, library: CUlibrary) using library_kernel;
hand post cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) using library_module;
hand call cuLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) using library_global;
local cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
local cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel);
local cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
local cuKernelGetParamCount(kernel: CUkernel, count: *mut usize);
local cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize);
hand call cuKernelGetAttribute(value: *mut i32, attribute: u32, kernel: CUkernel, device: i32) using function_get_attribute;
hand call cuKernelSetAttribute(attribute: u32, value: i32, kernel: CUkernel, device: i32) using function_set_attribute;
hand call cuKernelSetCacheConfig(kernel: CUkernel, config: u32, device: i32) using function_set_cache;
local cuFuncGetModule(module: *mut CUmodule, function: CUfunction);
local cuFuncGetName(name: *mut *const c_char, function: CUfunction);
local cuFuncGetParamCount(function: CUfunction, count: *mut usize);
local cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
hand call cuFuncGetAttribute(value: *mut i32, attribute: u32, function: CUfunction) using function_get_attribute;
hand call cuFuncSetAttribute(function: CUfunction, attribute: u32, value: i32) using function_set_attribute;
hand call cuFuncSetCacheConfig(function: CUfunction, config: u32) using function_set_cache;
local cuFuncLoad(function: CUfunction);
local cuFuncIsLoaded(state: *mut u32, function: CUfunction);

local cuLinkCreate_v2, cuLinkCreate(count: u32, options: *mut u32, values: *mut *mut c_void, state: *mut CUlinkState);
local cuLinkAddData_v2, cuLinkAddData(state: CUlinkState, kind: u32, data: *mut c_void, size: usize, name: *const c_char, count: u32, options: *mut u32, values: *mut *mut c_void);
local cuLinkAddFile_v2, cuLinkAddFile(state: CUlinkState, kind: u32, path: *const c_char, count: u32, options: *mut u32, values: *mut *mut c_void);
hand call cuLinkComplete(state: CUlinkState, image: *mut *mut c_void, size: *mut usize) using link, parcel_put, parcel_get;
local cuLinkDestroy(state: CUlinkState);

420 call cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>, function: Function, block_size: i32, dynamic_shared: usize, flags: Bits<1>);
421 call cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: Function, block_size: i32, dynamic_shared: usize);
422 call cuOccupancyAvailableDynamicSMemPerBlock(bytes: Out<usize>, function: Function, blocks: i32, block_size: i32);
hand call cuOccupancyMaxPotentialBlockSize(min_grid: *mut i32, block_size: *mut i32, function: CUfunction, dynamic_shared_of: Option<unsafe extern "C" fn(i32) -> usize>, dynamic_shared: usize, limit: i32) using cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
hand call cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid: *mut i32, block_size: *mut i32, function: CUfunction, dynamic_shared_of: Option<unsafe extern "C" fn(i32) -> usize>, dynamic_shared: usize, limit: i32, flags: u32) using cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;

    }};
}

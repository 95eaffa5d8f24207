//! A driver without a device: its functions note what they are asked, keep a little memory, and can be told to fail or
//! to hold streams up. One test uses it at a time.
#![allow(non_snake_case)]

mod virtual_memory;

use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_void};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::worker::code::Code;
use crate::worker::driver::Driver;
use crate::worker::functions::{Functions, HostFunction, LaunchConfig};

/// Where the device memory begins.
pub const BASE: u64 = 0x7000_0000_0000;
/// Its size.
pub const BYTES: usize = 2 << 20;
/// The legacy stream: what it is given waits for all held streams, and later work of any stream waits for that.
pub const LEGACY: u64 = 1;
/// Held among the streams: image loads do not get on.
pub const LOADS: u64 = u64::MAX;
/// Flags with which creating a stream or an event fails.
pub const REFUSED: u32 = 99;
/// What it fails with.
pub const REFUSAL: Code = Code(304);
/// What virtual memory comes in multiples of.
pub const GRANULARITY: u64 = 1 << 16;
/// An image that loads.
pub const IMAGE: &[u8] = b".version 9.0 // a kernel of two parameters";
/// Parameter layout of its kernel: an u64 and an u32.
pub const LAYOUT: [(usize, usize); 2] = [(0, 8), (8, 4)];

#[derive(Default)]
pub struct State {
    /// What was asked, in order.
    pub log: Vec<String>,
    memory: Vec<u8>,
    next: u64,
    /// Streams that do not get on.
    pub held: HashSet<u64>,
    /// Where events were last recorded.
    events: HashMap<u64, u64>,
    live: HashSet<u64>,
    /// Bytes that can still be created.
    pub left: usize,
    /// What is mapped: lengths by address.
    pub mapped: HashMap<u64, usize>,
    /// Page-locked addresses.
    locked: std::ops::Range<usize>,
    /// Copies that the legacy stream has not come to, as it waits for the others.
    of_legacy: usize,
    /// Copies that held streams have not come to.
    later: Vec<Box<dyn FnOnce() + Send>>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static BELL: Condvar = Condvar::new();
static ONE_TEST: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works on the state.
pub fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    work(lock().as_mut().expect("a test uses the null driver"))
}

fn note(what: String) -> Code {
    with(|state| state.log.push(what));
    Code::SUCCESS
}

/// Lets the held streams get on.
pub fn let_go() {
    let later = with(|state| std::mem::take(&mut state.later));
    later.into_iter().for_each(|copy| copy());
    with(|state| state.held.clear());
    BELL.notify_all();
}

/// How often something was asked.
pub fn count(what: &str) -> usize {
    with(|state| state.log.iter().filter(|entry| entry.starts_with(what)).count())
}

/// Waits for something to be asked.
pub fn wait_for(what: &str) {
    let start = std::time::Instant::now();
    while count(what) == 0 {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{what} was never asked: {:?}",
            with(|s| s.log.clone())
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The driver, for one test as long as the guard lives.
pub fn driver() -> (Driver, MutexGuard<'static, ()>) {
    let guard = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    *lock() = Some(State { memory: vec![0; BYTES], next: 0x5000, ..State::default() });
    let mut driver = Driver { hand: functions(), ..Driver::default() };
    driver.auto.cuMemsetD32Async = Some(memset32);
    driver.auto.cuStreamWaitEvent = Some(wait_event);
    driver.auto.cuCtxGetStreamPriorityRange = Some(priorities);
    (driver, guard)
}

fn fresh() -> u64 {
    with(|state| {
        state.next += 16;
        state.live.insert(state.next);
        state.next
    })
}

fn end(handle: u64) -> Code {
    // What the worker must never do: use something twice or after its end.
    assert!(with(|state| state.live.remove(&handle)), "{handle:#x} is not alive");
    Code::SUCCESS
}

fn alive(handle: u64) {
    assert!(handle <= 1 || with(|state| state.live.contains(&handle)), "{handle:#x} is not alive");
}

fn range(address: u64, bytes: usize) -> Option<std::ops::Range<usize>> {
    let from = usize::try_from(address.checked_sub(BASE)?).ok()?;
    let to = from.checked_add(bytes)?;
    (to <= BYTES).then_some(from..to)
}

fn pass(stream: u64) {
    pass_unless(|state| state.held.contains(&stream));
}

fn pass_unless(stopped: impl Fn(&State) -> bool) {
    let mut state = lock();
    while state.as_ref().is_some_and(&stopped) {
        state = BELL.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A copy comes to its turn in its stream, by the legacy stream's rule.
fn pass_in_order(stream: u64) {
    if stream > LEGACY {
        return pass_unless(|state| state.held.contains(&stream) || state.of_legacy > 0);
    }
    with(|state| state.of_legacy += 1);
    note("legacy copy".into());
    pass_unless(any_held);
    with(|state| state.of_legacy -= 1);
    BELL.notify_all();
}

fn ready(stream: u64) -> Code {
    if with(|state| state.held.contains(&stream)) { Code::NOT_READY } else { Code::SUCCESS }
}

fn any_held(state: &State) -> bool {
    state.held.iter().any(|held| *held != LOADS)
}

unsafe extern "C" fn memset32(address: u64, value: u32, count: usize, stream: u64) -> Code {
    alive(stream);
    match count.checked_mul(4).and_then(|bytes| range(address, bytes)) {
        None => Code::INVALID_VALUE,
        Some(range) => with(|state| {
            state.log.push(format!("memset32 {count} {stream:#x}"));
            state.memory[range].chunks_mut(4).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
            Code::SUCCESS
        }),
    }
}

unsafe extern "C" fn mem_info(free: &mut usize, total: &mut usize) -> Code {
    (*free, *total) = (BYTES / 2, BYTES);
    note("mem_info".into())
}

unsafe extern "C" fn priorities(least: *mut i32, greatest: *mut i32) -> Code {
    // SAFETY: the caller gives two valid pointers, as CUDA's contract says.
    unsafe {
        least.write(0);
        greatest.write(-5);
    }
    Code::SUCCESS
}

unsafe extern "C" fn wait_event(stream: u64, event: u64, flags: u32) -> Code {
    alive(stream);
    alive(event);
    note(format!("wait_event {flags}"))
}

unsafe extern "C" fn ok0() -> Code {
    note("context_synchronize".into())
}

unsafe extern "C" fn retain(context: &mut u64, device: i32) -> Code {
    *context = 0x100 + device as u64;
    with(|state| state.live.insert(0x100 + device as u64));
    note(format!("retain {device}"))
}

unsafe extern "C" fn release(device: i32) -> Code {
    note(format!("release {device}"))
}

unsafe extern "C" fn primary_state(_: i32, flags: &mut u32, active: &mut i32) -> Code {
    (*flags, *active) = (0, 1);
    Code::SUCCESS
}

unsafe extern "C" fn set_flags(_: i32, _: u32) -> Code {
    Code::SUCCESS
}

unsafe extern "C" fn context_create(context: &mut u64, _: u32, _: i32) -> Code {
    *context = fresh();
    Code::SUCCESS
}

unsafe extern "C" fn destroy(handle: u64) -> Code {
    end(handle)
}

unsafe extern "C" fn set_current(context: u64) -> Code {
    alive(context);
    note(format!("set_current {context:#x}"))
}

unsafe extern "C" fn alloc(address: &mut u64, bytes: usize) -> Code {
    *address = BASE;
    if bytes <= BYTES { Code::SUCCESS } else { Code::OUT_OF_MEMORY }
}

unsafe extern "C" fn alloc_pitch(
    address: &mut u64,
    pitch: &mut usize,
    width: usize,
    _: usize,
    _: u32,
) -> Code {
    (*address, *pitch) = (BASE, width.checked_next_multiple_of(256).unwrap_or(0));
    Code::SUCCESS
}

unsafe extern "C" fn free(address: u64) -> Code {
    if address == BASE { Code::SUCCESS } else { Code::INVALID_VALUE }
}

unsafe extern "C" fn to_device(address: u64, from: *const c_void, bytes: usize, stream: u64) -> Code {
    alive(stream);
    let Some(range) = range(address, bytes) else { return Code::INVALID_VALUE };
    let from = from.expose_provenance();
    let locked = with(|state| state.locked.contains(&from));
    let copy = move || {
        // SAFETY: the worker promises `bytes` readable bytes, which is what this test driver is to find out.
        let source =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(from), bytes) };
        with(|state| state.memory[range].copy_from_slice(source));
    };
    if locked && ready(stream) == Code::NOT_READY {
        // As a driver does: page-locked memory is read when the stream comes to it.
        with(|state| state.later.push(Box::new(copy)));
    } else {
        copy();
    }
    note(format!("to_device {bytes}"))
}

unsafe extern "C" fn host_register(memory: *mut c_void, bytes: usize, flags: u32) -> Code {
    let from = memory.expose_provenance();
    with(|state| state.locked = from..from + bytes);
    note(format!("host_register {bytes} {flags}"))
}

unsafe extern "C" fn host_unregister(memory: *mut c_void) -> Code {
    with(|state| assert_eq!(std::mem::take(&mut state.locked).start, memory.expose_provenance()));
    note("host_unregister".into())
}

unsafe extern "C" fn to_host(to: *mut c_void, address: u64, bytes: usize, stream: u64) -> Code {
    alive(stream);
    pass_in_order(stream);
    let Some(range) = range(address, bytes) else { return Code::INVALID_VALUE };
    // SAFETY: the worker promises `bytes` writable bytes.
    with(|state| unsafe { to.cast::<u8>().copy_from(state.memory[range].as_ptr(), bytes) });
    note(format!("to_host {bytes}"))
}

unsafe extern "C" fn load(
    module: &mut u64,
    image: *const c_void,
    _: u32,
    _: *mut u32,
    _: *mut *mut c_void,
) -> Code {
    // SAFETY: an image is followed by zeroes, so it ends as a string at the latest there.
    let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) };
    if text.to_bytes() != IMAGE {
        return Code(218);
    }
    with(|state| state.log.push("load begins".into()));
    pass(LOADS);
    *module = fresh();
    note("load".into())
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn load_library(
    library: &mut u64,
    image: *const c_void,
    _: *mut u32,
    values: *mut *mut c_void,
    _: u32,
    _: *mut u32,
    _: *mut *mut c_void,
    _: u32,
) -> Code {
    // SAFETY: as `load`'s.
    unsafe { load(library, image, 0, std::ptr::null_mut(), values) }
}

unsafe extern "C" fn kernel_count(count: &mut u32, module: u64) -> Code {
    alive(module);
    *count = 1;
    Code::SUCCESS
}

unsafe extern "C" fn kernels(out: *mut u64, count: u32, module: u64) -> Code {
    assert_eq!(count, 1);
    // SAFETY: there is room for `count`.
    unsafe { out.write(module + 1) };
    with(|state| state.live.insert(module + 1));
    Code::SUCCESS
}

unsafe extern "C" fn name(name: &mut *const c_char, _: u64) -> Code {
    *name = c"kernel".as_ptr();
    Code::SUCCESS
}

unsafe extern "C" fn param(_: u64, index: usize, offset: &mut usize, size: &mut usize) -> Code {
    let Some(&layout) = LAYOUT.get(index) else { return Code::INVALID_VALUE };
    (*offset, *size) = layout;
    Code::SUCCESS
}

unsafe extern "C" fn func_attribute(value: &mut i32, attribute: u32, function: u64) -> Code {
    alive(function);
    *value = attribute as i32 * 10;
    if attribute < 3 { Code::SUCCESS } else { Code::INVALID_VALUE }
}

unsafe extern "C" fn kernel_attribute(value: &mut i32, attribute: u32, kernel: u64, _: i32) -> Code {
    // SAFETY: the same contract.
    unsafe { func_attribute(value, attribute, kernel) }
}

unsafe extern "C" fn func_set(function: u64, _: u32, _: i32) -> Code {
    alive(function);
    Code::SUCCESS
}

unsafe extern "C" fn kernel_function(function: &mut u64, kernel: u64) -> Code {
    alive(kernel);
    *function = kernel;
    Code::SUCCESS
}

unsafe extern "C" fn library_module(module: &mut u64, library: u64) -> Code {
    alive(library);
    *module = library;
    Code::SUCCESS
}

unsafe extern "C" fn global(address: &mut u64, bytes: &mut usize, module: u64, name: *const c_char) -> Code {
    alive(module);
    // SAFETY: a C string.
    let name = unsafe { std::ffi::CStr::from_ptr(name) };
    (*address, *bytes) = (BASE, 4);
    if name == c"variable" { Code::SUCCESS } else { Code::NOT_FOUND }
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn launch(
    function: u64,
    grid: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    stream: u64,
    parameters: *mut *mut c_void,
    _: *mut *mut c_void,
) -> Code {
    alive(function);
    alive(stream);
    // SAFETY: two addresses of parameters of 8 and 4 bytes, by `LAYOUT`.
    let (first, second) = unsafe {
        ((*parameters).cast::<u64>().read_unaligned(), (*parameters.add(1)).cast::<u32>().read_unaligned())
    };
    note(format!("launch {grid} {first:#x} {second}"))
}

unsafe extern "C" fn launch_ex(
    config: &LaunchConfig,
    function: u64,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> Code {
    alive(function);
    let rows: Vec<_> = (0..config.count as usize)
        // SAFETY: as many attributes as are said.
        .map(|i| unsafe { config.attributes.add(i).read() })
        .map(|row| format!("{}={:#x}", row.id, row.value[0]))
        .collect();
    note(format!("launch_ex {}", rows.join(" ")))
}

struct Argument(HostFunction, *mut c_void);
// SAFETY: the driver's contract is that the function is called on another thread.
unsafe impl Send for Argument {}

unsafe extern "C" fn host(stream: u64, function: HostFunction, data: *mut c_void) -> Code {
    alive(stream);
    with(|state| state.held.insert(stream));
    let argument = Argument(function, data);
    std::thread::spawn(move || {
        let Argument(function, data) = { argument };
        // SAFETY: called once, as promised.
        unsafe { function(data) };
        with(|state| {
            state.log.push("host function ran".into());
            state.held.remove(&stream)
        });
        BELL.notify_all();
    });
    Code::SUCCESS
}

unsafe extern "C" fn stream_create(stream: &mut u64, flags: u32, _: i32) -> Code {
    if flags == REFUSED {
        return REFUSAL;
    }
    *stream = fresh();
    note(format!("stream {stream:#x}"))
}

unsafe extern "C" fn stream_synchronize(stream: u64) -> Code {
    alive(stream);
    with(|state| state.log.push("synchronize".into()));
    pass(stream);
    Code::SUCCESS
}

unsafe extern "C" fn stream_query(stream: u64) -> Code {
    alive(stream);
    ready(stream)
}

unsafe extern "C" fn event_create(event: &mut u64, flags: u32) -> Code {
    if flags == REFUSED {
        return REFUSAL;
    }
    *event = fresh();
    Code::SUCCESS
}

unsafe extern "C" fn event_record(event: u64, stream: u64) -> Code {
    alive(event);
    alive(stream);
    with(|state| state.events.insert(event, stream));
    Code::SUCCESS
}

unsafe extern "C" fn event_synchronize(event: u64) -> Code {
    alive(event);
    let stream = with(|state| state.events.get(&event).copied());
    stream.into_iter().for_each(pass);
    Code::SUCCESS
}

unsafe extern "C" fn event_query(event: u64) -> Code {
    alive(event);
    let stream = with(|state| state.events.get(&event).copied());
    stream.map_or(Code::SUCCESS, ready)
}

fn functions() -> Functions {
    Functions {
        cuDevicePrimaryCtxRetain: Some(retain),
        cuDevicePrimaryCtxRelease_v2: Some(release),
        cuDevicePrimaryCtxReset_v2: Some(release),
        cuDevicePrimaryCtxGetState: Some(primary_state),
        cuDevicePrimaryCtxSetFlags_v2: Some(set_flags),
        cuCtxCreate_v2: Some(context_create),
        cuCtxDestroy_v2: Some(destroy),
        cuCtxSetCurrent: Some(set_current),
        cuCtxSynchronize: Some(ok0),
        cuMemGetInfo_v2: Some(mem_info),
        cuMemAddressReserve: Some(virtual_memory::reserve),
        cuMemAddressFree: Some(virtual_memory::unreserve),
        cuMemGetAllocationGranularity: Some(virtual_memory::granularity),
        cuMemCreate: Some(virtual_memory::create),
        cuMemRelease: Some(destroy),
        cuMemMap: Some(virtual_memory::map),
        cuMemUnmap: Some(virtual_memory::unmap),
        cuMemSetAccess: Some(virtual_memory::set_access),
        cuMemAlloc_v2: Some(alloc),
        cuMemAllocPitch_v2: Some(alloc_pitch),
        cuMemFree_v2: Some(free),
        cuMemHostRegister_v2: Some(host_register),
        cuMemHostUnregister: Some(host_unregister),
        cuMemcpyHtoDAsync_v2: Some(to_device),
        cuMemcpyDtoHAsync_v2: Some(to_host),
        cuModuleLoadDataEx: Some(load),
        cuModuleUnload: Some(destroy),
        cuModuleGetFunctionCount: Some(kernel_count),
        cuModuleEnumerateFunctions: Some(kernels),
        cuModuleGetGlobal_v2: Some(global),
        cuFuncGetName: Some(name),
        cuFuncGetParamInfo: Some(param),
        cuFuncGetAttribute: Some(func_attribute),
        cuFuncSetAttribute: Some(func_set),
        cuLibraryLoadData: Some(load_library),
        cuLibraryUnload: Some(destroy),
        cuLibraryGetKernelCount: Some(kernel_count),
        cuLibraryEnumerateKernels: Some(kernels),
        cuLibraryGetModule: Some(library_module),
        cuLibraryGetGlobal: Some(global),
        cuKernelGetName: Some(name),
        cuKernelGetFunction: Some(kernel_function),
        cuKernelGetParamInfo: Some(param),
        cuKernelGetAttribute: Some(kernel_attribute),
        cuLaunchKernel: Some(launch),
        cuLaunchKernelEx: Some(launch_ex),
        cuLaunchHostFunc: Some(host),
        cuStreamCreateWithPriority: Some(stream_create),
        cuStreamDestroy_v2: Some(destroy),
        cuStreamSynchronize: Some(stream_synchronize),
        cuStreamQuery: Some(stream_query),
        cuEventCreate: Some(event_create),
        cuEventDestroy_v2: Some(destroy),
        cuEventRecord: Some(event_record),
        cuEventSynchronize: Some(event_synchronize),
        cuEventQuery: Some(event_query),
        ..Functions::default()
    }
}

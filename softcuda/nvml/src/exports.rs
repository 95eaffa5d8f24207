//! The symbols: `extern "C"` functions that check pointers and ask [`crate::devices`].
#![allow(clippy::missing_safety_doc, non_snake_case, reason = "the prototypes are NVML's")]

use crate::devices::{self, Device};
use crate::status::{self, Result, Status};
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a function: nothing may unwind into C.
fn call(body: impl FnOnce() -> Result) -> u32 {
    let done = catch_unwind(AssertUnwindSafe(body));
    done.map_or(999, |result| result.err().map_or(0, |status| status as u32))
}

/// # Safety
/// The place is null or may be written.
unsafe fn give<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(Status::InvalidArgument);
    }
    // SAFETY: not null, and the caller vouches for it.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// # Safety
/// The place is null or has as much room as is said.
unsafe fn give_text(place: *mut c_char, room: u32, text: &str) -> Result {
    if place.is_null() {
        return Err(Status::InvalidArgument);
    }
    if text.len() >= room as usize {
        return Err(Status::InsufficientSize);
    }
    // SAFETY: the text and the zero behind it fit.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

/// # Safety
/// The text is null or ends with a zero.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(Status::InvalidArgument);
    }
    // SAFETY: not null, and the caller vouches for the zero.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Status::NotFound)
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    id: [u8; 32],
}

/// `nvmlMemory_t`, and `nvmlBAR1Memory_t`, which has the same fields.
#[repr(C)]
pub struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct MemoryInfoV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlUtilization_t`.
#[repr(C)]
pub struct Utilization {
    gpu: u32,
    memory: u32,
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
pub struct ProcessV1 {
    pid: u32,
    memory: u64,
}

/// `nvmlProcessInfo_v2_t` and later.
#[repr(C)]
pub struct Process {
    pid: u32,
    memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Default)]
pub struct Attributes {
    multiprocessors: u32,
    copy_engines: u32,
    others: [u32; 4],
    gpu_slices: u32,
    compute_slices: u32,
    memory_mb: u64,
}

/// Declares functions: a name, its arguments, and a body that gives a [`Result`].
macro_rules! nvml {
    (@also [] $arguments:tt $body:block) => {};
    (@also [$first:ident $($rest:ident)*] $arguments:tt $body:block) => {
        nvml! { @function $first $arguments $body }
        nvml! { @also [$($rest)*] $arguments $body }
    };
    (@function $name:ident ($($argument:ident : $type:ty),* $(,)?) $body:block) => {
        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            // SAFETY: the body follows only pointers that it found not to be null and that the caller made good.
            #[allow(unused_unsafe, reason = "not every body follows a pointer")]
            call(|| unsafe { $body })
        }
    };
    ($($name:ident $(| $other:ident)* ($($arguments:tt)*) $body:block)*) => {
        $(
            nvml! { @function $name ($($arguments)*) $body }
            nvml! { @also [$($other)*] ($($arguments)*) $body }
        )*
    };
}

/// Declares functions that are of no use for a CPU: with a device that exists they answer that it does not have it.
macro_rules! not_supported {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: a CPU does not have it.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(device: usize) -> u32 {
                call(|| Device::of_handle(device).and(Err(Status::NotSupported)))
            }
        )*
    };
}

/// The newest CUDA version that softcuda knows, and a version of a driver that has it.
const CUDA_VERSION: i32 = 13040;
const DRIVER_VERSION: &str = "615.00.00";

nvml! {
    nvmlInit | nvmlInit_v2 () { devices::init() }
    nvmlInitWithFlags(_flags: u32) { devices::init() }
    nvmlShutdown() { devices::shut_down() }
    nvmlSystemGetDriverVersion(version: *mut c_char, room: u32) {
        devices::gpus()?;
        give_text(version, room, DRIVER_VERSION)
    }
    nvmlSystemGetNVMLVersion(version: *mut c_char, room: u32) {
        devices::gpus()?;
        give_text(version, room, &format!("13.{DRIVER_VERSION}"))
    }
    nvmlSystemGetCudaDriverVersion | nvmlSystemGetCudaDriverVersion_v2 (version: *mut i32) { give(version, CUDA_VERSION) }
    nvmlSystemGetProcessName(pid: u32, name: *mut c_char, room: u32) {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Status::NotFound)?;
        let first = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut whole = String::from_utf8_lossy(first).into_owned();
        // What does not fit is cut.
        while whole.len() >= (room as usize).max(1) {
            whole.pop();
        }
        give_text(name, room, &whole)
    }
    nvmlDeviceGetCount | nvmlDeviceGetCount_v2 (count: *mut u32) { give(count, devices::gpus()?.len() as u32) }
    nvmlDeviceGetHandleByIndex | nvmlDeviceGetHandleByIndex_v2 (index: u32, device: *mut usize) {
        give(device, Device::of_number(index)?.handle())
    }
    nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut usize) {
        give(device, Device::of_uuid(text(uuid)?)?.handle())
    }
    nvmlDeviceGetHandleByPciBusId | nvmlDeviceGetHandleByPciBusId_v2 (id: *const c_char, device: *mut usize) {
        let pci = softcuda_device::fleet::parse_pci(text(id)?).ok_or(Status::InvalidArgument)?;
        let number = devices::gpus()?.iter().position(|gpu| gpu.pci == pci).ok_or(Status::NotFound)?;
        give(device, Device::of_number(number as u32)?.handle())
    }
    // Devices without serial numbers.
    nvmlDeviceGetHandleBySerial(serial: *const c_char, _device: *mut usize) {
        devices::gpus()?;
        text(serial).and(Err(Status::NotFound))
    }
    nvmlDeviceGetIndex(device: usize, index: *mut u32) {
        let device = Device::of_handle(device)?;
        give(index, device.instance.unwrap_or(device.gpu) as u32)
    }
    nvmlDeviceGetMinorNumber(device: usize, number: *mut u32) {
        let device = Device::of_handle(device)?;
        if device.instance.is_some() {
            return Err(Status::NotSupported);
        }
        give(number, device.gpu as u32)
    }
    nvmlDeviceGetName(device: usize, name: *mut c_char, room: u32) {
        give_text(name, room, &Device::of_handle(device)?.name()?)
    }
    nvmlDeviceGetUUID(device: usize, uuid: *mut c_char, room: u32) {
        give_text(uuid, room, &Device::of_handle(device)?.uuid_text()?)
    }
    nvmlDeviceGetPciInfo | nvmlDeviceGetPciInfo_v2 | nvmlDeviceGetPciInfo_v3 (device: usize, info: *mut PciInfo) {
        let device = Device::of_handle(device)?;
        if device.instance.is_some() {
            return Err(Status::NotSupported);
        }
        give(info, pci_info(device)?)
    }
    nvmlDeviceGetMemoryInfo | nvmlDeviceGetBAR1MemoryInfo (device: usize, info: *mut MemoryInfo) {
        // The host reaches all of the memory, so its window (BAR1) is as large as that.
        let memory = Device::of_handle(device)?.memory()?;
        give(info, MemoryInfo { total: memory.total, free: memory.total - memory.used, used: memory.used })
    }
    nvmlDeviceGetMemoryInfo_v2(device: usize, info: *mut MemoryInfoV2) {
        let device = Device::of_handle(device)?;
        let version = if info.is_null() { return Err(Status::InvalidArgument) } else { (&raw const (*info).version).read() };
        if version != size_of::<MemoryInfoV2>() as u32 | 2 << 24 {
            return Err(Status::VersionMismatch);
        }
        let memory = device.memory()?;
        let free = memory.total - memory.used;
        give(info, MemoryInfoV2 { version, total: memory.total, reserved: 0, free, used: memory.used })
    }
    nvmlDeviceGetUtilizationRates(device: usize, rates: *mut Utilization) {
        // How busy the memory is nobody measures.
        give(rates, Utilization { gpu: Device::of_handle(device)?.utilization()?, memory: 0 })
    }
    nvmlDeviceGetComputeRunningProcesses(device: usize, count: *mut u32, list: *mut ProcessV1) {
        let all = Device::of_handle(device)?.processes()?;
        give_list(count, list, all.iter().map(|(usage, _)| ProcessV1 { pid: usage.pid, memory: usage.memory }))
    }
    nvmlDeviceGetComputeRunningProcesses_v2 | nvmlDeviceGetComputeRunningProcesses_v3 (
        device: usize, count: *mut u32, list: *mut Process
    ) {
        let all = Device::of_handle(device)?.processes()?;
        give_list(count, list, all.iter().map(|(usage, instance)| Process {
            pid: usage.pid,
            memory: usage.memory,
            gpu_instance: instance.unwrap_or(u32::MAX),
            compute_instance: instance.map_or(u32::MAX, |_| 0),
        }))
    }
    nvmlDeviceGetGraphicsRunningProcesses | nvmlDeviceGetGraphicsRunningProcesses_v2 | nvmlDeviceGetGraphicsRunningProcesses_v3
    | nvmlDeviceGetMPSComputeRunningProcesses | nvmlDeviceGetMPSComputeRunningProcesses_v2
    | nvmlDeviceGetMPSComputeRunningProcesses_v3 (device: usize, count: *mut u32, _list: *mut Process) {
        Device::of_handle(device)?;
        give(count, 0)
    }
    nvmlDeviceGetMigMode(device: usize, current: *mut u32, pending: *mut u32) {
        let device = Device::of_handle(device)?;
        if device.instance.is_some() {
            return Err(Status::InvalidArgument);
        }
        let mode = u32::from(!device.gpu()?.instances.is_empty());
        give(current, mode)?;
        give(pending, mode)
    }
    nvmlDeviceGetMaxMigDeviceCount(device: usize, count: *mut u32) {
        // As many as the device is cut into; a device that is not in this mode has none.
        give(count, Device::of_handle(device)?.gpu()?.instances.len() as u32)
    }
    nvmlDeviceGetMigDeviceHandleByIndex(device: usize, index: u32, instance: *mut usize) {
        let device = Device::of_handle(device)?;
        let count = device.gpu()?.instances.len();
        if device.instance.is_some() || count == 0 {
            return Err(Status::InvalidArgument);
        }
        if index as usize >= count {
            return Err(Status::NotFound);
        }
        give(instance, Device { gpu: device.gpu, instance: Some(index as usize) }.handle())
    }
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance: usize, device: *mut usize) {
        let found = Device::of_handle(instance)?;
        found.instance()?;
        give(device, Device { gpu: found.gpu, instance: None }.handle())
    }
    nvmlDeviceIsMigDeviceHandle(device: usize, is: *mut u32) {
        give(is, u32::from(Device::of_handle(device)?.instance.is_some()))
    }
    nvmlDeviceGetGpuInstanceId(device: usize, id: *mut u32) { give(id, Device::of_handle(device)?.instance()?.number) }
    nvmlDeviceGetComputeInstanceId(device: usize, id: *mut u32) {
        Device::of_handle(device)?.instance()?;
        give(id, 0)
    }
    nvmlDeviceGetAttributes | nvmlDeviceGetAttributes_v2 (device: usize, attributes: *mut Attributes) {
        let instance = Device::of_handle(device)?.instance()?;
        // A profile begins with its number of slices, as in 3g.71gb.
        let slices = instance.profile.split('g').next().and_then(|n| n.parse().ok()).unwrap_or(1);
        give(attributes, Attributes {
            multiprocessors: instance.multiprocessors,
            copy_engines: 1,
            gpu_slices: slices,
            compute_slices: slices,
            memory_mb: instance.memory >> 20,
            ..Attributes::default()
        })
    }
    nvmlDeviceGetCudaComputeCapability(device: usize, major: *mut i32, minor: *mut i32) {
        let (a, b) = Device::of_handle(device)?.gpu()?.capability;
        give(major, a as i32)?;
        give(minor, b as i32)
    }
    nvmlDeviceGetPersistenceMode | nvmlDeviceGetComputeMode | nvmlDeviceGetDisplayMode | nvmlDeviceGetDisplayActive (
        device: usize, mode: *mut u32
    ) {
        Device::of_handle(device)?;
        give(mode, 0)
    }
    nvmlDeviceGetBrand(device: usize, brand: *mut u32) {
        Device::of_handle(device)?;
        // NVML_BRAND_UNKNOWN
        give(brand, 0)
    }
    nvmlDeviceGetArchitecture(device: usize, architecture: *mut u32) {
        let number = match Device::of_handle(device)?.gpu()?.capability {
            (7, 5) => 6,
            (8, 9) => 8,
            (8, _) => 7,
            (9, _) => 9,
            (10.., _) => 10,
            _ => u32::MAX,
        };
        give(architecture, number)
    }
    nvmlDeviceGetTopologyCommonAncestor(one: usize, other: usize, level: *mut u32) {
        let (one, other) = (Device::of_handle(one)?, Device::of_handle(other)?);
        // NVML_TOPOLOGY_INTERNAL, else NVML_TOPOLOGY_SYSTEM.
        give(level, if one.gpu == other.gpu { 0 } else { 50 })
    }
    nvmlDeviceGetP2PStatus(one: usize, other: usize, _index: u32, status: *mut u32) {
        Device::of_handle(one)?;
        Device::of_handle(other)?;
        // NVML_P2P_STATUS_NOT_SUPPORTED
        give(status, 5)
    }
}

not_supported! {
    nvmlDeviceGetSerial nvmlDeviceGetTemperature nvmlDeviceGetTemperatureThreshold nvmlDeviceGetFanSpeed nvmlDeviceGetFanSpeed_v2 nvmlDeviceGetNumFans
    nvmlDeviceGetPowerUsage nvmlDeviceGetPowerManagementLimit nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetPowerState
    nvmlDeviceGetPerformanceState nvmlDeviceGetTotalEnergyConsumption nvmlDeviceGetClockInfo nvmlDeviceGetMaxClockInfo
    nvmlDeviceGetApplicationsClock nvmlDeviceGetEccMode nvmlDeviceGetTotalEccErrors
    nvmlDeviceGetEncoderUtilization nvmlDeviceGetDecoderUtilization nvmlDeviceGetPcieThroughput
    nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetCurrPcieLinkWidth
    nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetNvLinkState nvmlDeviceGetProcessUtilization nvmlDeviceGetAccountingMode
    nvmlDeviceGetVbiosVersion nvmlDeviceGetCpuAffinity nvmlDeviceGetMemoryAffinity nvmlDeviceGetCurrentClocksThrottleReasons
    nvmlDeviceGetMemoryBusWidth nvmlDeviceGetDriverModel nvmlDeviceGetFieldValues
}

/// `nvmlErrorString`
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    status::text(code).as_ptr()
}

fn pci_info(device: Device) -> Result<PciInfo> {
    fn field<const N: usize>(text: &str) -> [u8; N] {
        let mut bytes = [0; N];
        let length = text.len().min(N - 1);
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        bytes
    }
    let pci = device.gpu()?.pci;
    let place = format!("{:02X}:{:02X}.0", pci.bus, pci.device);
    Ok(PciInfo {
        legacy: field(&format!("{:04X}:{place}", pci.domain)),
        domain: pci.domain,
        bus: pci.bus,
        device: pci.device,
        // It has none: it is no card.
        device_id: 0,
        subsystem_id: 0,
        id: field(&format!("{:08X}:{place}", pci.domain)),
    })
}

/// Gives a list as NVML does: what does not fit is an error that says how much room it takes.
///
/// # Safety
/// `count` is null or good; the list has as many entries as it says.
unsafe fn give_list<T>(count: *mut u32, list: *mut T, all: impl ExactSizeIterator<Item = T>) -> Result {
    if count.is_null() {
        return Err(Status::InvalidArgument);
    }
    // SAFETY: not null, and the caller vouches for it and the list.
    unsafe {
        let room = *count;
        *count = all.len() as u32;
        if room < *count || (list.is_null() && *count > 0) {
            return Err(Status::InsufficientSize);
        }
        for (i, entry) in all.enumerate() {
            list.add(i).write_unaligned(entry);
        }
    }
    Ok(())
}

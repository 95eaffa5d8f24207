//! The driver: a library that speaks the CUDA driver API, loaded by absolute path and reached through tables of function
//! addresses. Nothing here links `libcuda`, and nothing is looked up by a name that a search path could lead astray.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_void};
use std::path::Path;

use anyhow::{Context, bail};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use gpupool_protocol::api::{CALL_MAP_BITS, CALLS, SYMBOLS};
use gpupool_protocol::control::{DeviceInfo, Snapshot};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::calls;
use super::code::Code;
use super::dispatch::AutoFunctions;
use super::functions::Functions;

/// A loaded driver.
#[derive(Debug, Clone, Default)]
pub struct Driver {
    /// For the calls that go to the driver as they stand.
    pub auto: AutoFunctions,
    /// For hand-written bodies.
    pub hand: Functions,
}

/// Loads the driver's library by its absolute path. Nothing is initialised.
///
/// # Errors
/// The path is not absolute, or the dynamic linker refuses the library: its message says why.
pub fn open(path: &Path) -> anyhow::Result<Driver> {
    if !path.is_absolute() {
        bail!("the driver's path must be absolute, so that no search path decides what is loaded");
    }
    // SAFETY: loading runs the library's initialisers. That is what an operator asks for who names it as the driver.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .context("the dynamic linker refuses the library")?;
    let find = |name: &'static str| symbol(&library, name);
    // SAFETY: a library that is given as a driver exports cuda.h's functions under cuda.h's names, and it is never
    // unloaded (the handle is leaked below).
    let driver = unsafe { Driver { auto: AutoFunctions::load(find), hand: Functions::load(find) } };
    std::mem::forget(library);
    if driver.hand.cuInit.is_none() {
        bail!("the library exports no cuInit: it is no CUDA driver");
    }
    Ok(driver)
}

/// The address of a symbol, or of an older version of it that has the same ABI.
fn symbol(library: &Library, name: &'static str) -> Option<*const c_void> {
    let others =
        SYMBOLS.iter().filter(|s| s.call == name && s.symbol != name && !s.per_thread).map(|s| s.symbol);
    std::iter::once(name).chain(others).find_map(|name| {
        let name = CString::new(name).ok()?;
        // SAFETY: only the address is taken; the tables give it the type that cuda.h gives the name.
        let found = unsafe { library.get::<*const c_void>(name.as_bytes_with_nul()) }.ok()?;
        let address = found.into_raw().cast_const();
        (!address.is_null()).then_some(address.cast())
    })
}

/// Attribute identifiers that are asked for: some beyond the newest known one, since asking is harmless.
const ATTRIBUTES: std::ops::RangeInclusive<i32> = 1..=160;

/// Initialises the driver and asks what it shows. Creates no context.
///
/// # Errors
/// A call that every driver must answer failed: no device, no permission, no driver behind the library.
pub fn inventory(driver: &Driver) -> anyhow::Result<Snapshot> {
    let f = &driver.hand;
    answered("cuInit", f.cuInit(0))?;
    let (mut version, mut count) = (0, 0);
    answered("cuDriverGetVersion", f.cuDriverGetVersion(&mut version))?;
    answered("cuDeviceGetCount", f.cuDeviceGetCount(&mut count))?;
    let devices = (0..count).map(|ordinal| device(f, ordinal)).collect::<anyhow::Result<_>>()?;
    Ok(Snapshot { driver_version: u32::try_from(version)?, devices, calls: call_map(driver) })
}

fn answered(what: &str, code: Code) -> anyhow::Result<()> {
    if code == Code::SUCCESS { Ok(()) } else { bail!("{what} answers CUDA error {}", code.0) }
}

fn device(f: &Functions, ordinal: i32) -> anyhow::Result<DeviceInfo> {
    let mut info = DeviceInfo::default();
    let mut device = 0;
    answered("cuDeviceGet", f.cuDeviceGet(&mut device, ordinal))?;
    let mut name = [0u8; 256];
    // SAFETY: the driver writes at most 255 bytes into the 256; the last one stays the terminator.
    let code = unsafe { f.cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), 255, device) };
    answered("cuDeviceGetName", code)?;
    let length = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    info.name = String::from_utf8_lossy(&name[..length]).into_owned();
    answered("cuDeviceGetUuid_v2", f.cuDeviceGetUuid_v2(&mut info.uuid, device))?;
    let mut total = 0;
    answered("cuDeviceTotalMem_v2", f.cuDeviceTotalMem_v2(&mut total, device))?;
    info.total_memory = total as u64;
    for attribute in ATTRIBUTES {
        let mut value = 0;
        if f.cuDeviceGetAttribute(&mut value, attribute, device) == Code::SUCCESS {
            info.attributes.push((attribute, value));
        }
    }
    let of =
        |wanted: Attribute| info.attributes.iter().find(|(a, _)| *a == wanted as i32).map_or(0, |(_, v)| *v);
    info.pci = (
        of(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
        of(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
        of(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    );
    Ok(info)
}

/// A bit for each record that this driver has the functions for.
fn call_map(driver: &Driver) -> Vec<u64> {
    let mut map = vec![0u64; CALL_MAP_BITS / 64];
    for call in CALLS {
        if driver.auto.has(call.number) || calls::possible(&driver.hand, call.number) {
            map[usize::from(call.number) / 64] |= 1 << (call.number % 64);
        }
    }
    map
}

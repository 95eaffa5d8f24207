//! A device and what is asked of it.
#![forbid(unsafe_code)]

use crate::attributes;
use crate::config::Config;
use crate::error::*;
use crate::primary::Primary;
use cuda_abi::integrity::DeviceIdentity;
use softcuda_engine::{Engine, Memory};
use std::sync::Arc;

/// What `cuDeviceGetName` answers.
pub const NAME: &str = "softcuda (CPU)";

/// One presented device.
pub struct Device {
    /// Its number.
    pub ordinal: i32,
    /// UUID and place on the PCI bus, as shown everywhere.
    pub identity: DeviceIdentity,
    /// Its memory.
    pub memory: Arc<Memory>,
    /// What runs its grids.
    pub engine: Arc<Engine>,
    /// How many multiprocessors it has: one a worker thread.
    pub multiprocessors: u32,
    /// Its primary context.
    pub primary: Primary,
    /// Its stream-ordered memory pools.
    pub pools: crate::pool::DevicePools,
    /// What its graphs use.
    pub graph_memory: crate::graph::memory::Usage,
}

impl Device {
    /// Reserves the device's memory.
    ///
    /// # Errors
    /// When the system refuses the address range.
    pub fn new(ordinal: usize, identity: DeviceIdentity, config: &Config) -> std::io::Result<Self> {
        let memory = Memory::new(config.memory)?;
        Ok(Self {
            ordinal: ordinal as i32,
            identity,
            engine: Engine::with_cache(memory.clone(), config.workers, crate::code_cache::get()),
            memory,
            multiprocessors: config.workers as u32,
            primary: Primary::new(),
            pools: crate::pool::DevicePools::new(),
            graph_memory: crate::graph::memory::Usage::default(),
        })
    }

    /// `cuDeviceGetAttribute`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute.
    pub fn attribute(&self, id: u32) -> Result<i32> {
        attributes::value(self, id).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuDeviceGetPCIBusId`: `domain:bus:device.function`, 12 characters as the manual's "13 with the NUL" has it.
    pub fn pci_bus_id(&self) -> String {
        let id = &self.identity;
        format!("{:04X}:{:02X}:{:02X}.0", id.pci_domain, id.pci_bus, id.pci_device)
    }
}

/// UUID and place of the machine's device of this number: the same in every process and on every run.
pub fn identity(index: usize) -> DeviceIdentity {
    let mut uuid = *b"softcuda-cpu-\x40\x80\0";
    uuid[15] = index as u8;
    DeviceIdentity { uuid, pci_domain: 0, pci_bus: index as i32 + 1, pci_device: 0 }
}

/// The ordinal that a PCI id names: `[domain:]bus:device[.function]`, in hexadecimal.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a text of another form, `CUDA_ERROR_INVALID_DEVICE` if no device has it.
pub fn by_pci_bus_id(text: &str, devices: &[Arc<Device>]) -> Result<i32> {
    let (place, function) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let hex = |part: &str| i32::from_str_radix(part, 16).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let parts = place.split(':').map(hex).collect::<Result<Vec<_>>>()?;
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (domain, bus, device),
        [bus, device] => (0, bus, device),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let same = |d: &&Arc<Device>| {
        let id = &d.identity;
        hex(function) == Ok(0) && (id.pci_domain, id.pci_bus, id.pci_device) == (domain, bus, device)
    };
    devices.iter().find(same).map(|d| d.ordinal).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(devices: usize) -> Config {
        Config {
            devices,
            memory: 1 << 20,
            driver_version: 13040,
            workers: 2,
            visible: None,
            eager: false,
            refuse_hints: false,
        }
    }

    #[test]
    fn a_pci_id_has_twelve_characters() {
        assert_eq!(Device::new(11, identity(11), &config(12)).unwrap().pci_bus_id(), "0000:0C:00.0");
    }

    #[test]
    fn devices_are_told_apart() {
        let (a, b) = (
            Device::new(0, identity(0), &config(2)).unwrap(),
            Device::new(1, identity(1), &config(2)).unwrap(),
        );
        assert_ne!(a.identity, b.identity);
        assert_eq!(a.pci_bus_id(), "0000:01:00.0");
        let both = [Arc::new(a), Arc::new(b)];
        assert_eq!(by_pci_bus_id("0000:02:00.0", &both), Ok(1));
        assert_eq!(by_pci_bus_id("01:00", &both), Ok(0));
        assert_eq!(by_pci_bus_id("03:00.0", &both), Err(CUDA_ERROR_INVALID_DEVICE));
        assert_eq!(by_pci_bus_id("gpu", &both), Err(CUDA_ERROR_INVALID_VALUE));
    }
}

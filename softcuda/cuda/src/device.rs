//! A device and what is asked of it.
#![forbid(unsafe_code)]

use crate::attributes;
use crate::capability::Capability;
use crate::config::Config;
use crate::error::*;
use crate::primary::Primary;
use crate::share::Share;
use cuda_abi::integrity::DeviceIdentity;
use softcuda_device::fleet::{Gpu, Instance, parse_pci};
use softcuda_engine::{Engine, Memory};
use std::sync::Arc;

/// One presented device: one of the machine's, or an instance of it.
pub struct Device {
    /// Its number.
    pub ordinal: i32,
    /// What `cuDeviceGetName` answers.
    pub name: String,
    /// UUID and place on the PCI bus, as shown everywhere.
    pub identity: DeviceIdentity,
    /// Its compute capability.
    pub capability: Capability,
    /// Its memory.
    pub memory: Arc<Memory>,
    /// What runs its grids.
    pub engine: Arc<Engine>,
    /// What it has in common with other processes.
    pub share: Arc<Share>,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// Its primary context.
    pub primary: Primary,
    /// Its stream-ordered memory pools.
    pub pools: crate::pool::DevicePools,
    /// What its graphs use.
    pub graph_memory: crate::graph::memory::Usage,
}

impl Device {
    /// Reserves the addresses of the device's memory.
    ///
    /// # Errors
    /// When the system refuses the address range.
    pub fn new(
        ordinal: usize,
        gpu: &Gpu,
        instance: Option<&Instance>,
        config: &Config,
    ) -> std::io::Result<Self> {
        let (uuid, bytes, multiprocessors, name) = match instance {
            Some(i) => (i.uuid, i.memory, i.multiprocessors, format!("{} MIG {}", gpu.name, i.profile)),
            None => (gpu.uuid, gpu.memory, gpu.multiprocessors, gpu.name.clone()),
        };
        let share = Arc::new(Share::new(ordinal as u32, uuid, bytes, config));
        let memory = Memory::counted(bytes, Some(share.clone()), config.addresses)?;
        let engine = Engine::with_cache(memory.clone(), config.workers, crate::code_cache::get());
        engine.set_gate(share.clone());
        let pci = gpu.pci;
        let identity = DeviceIdentity {
            uuid,
            pci_domain: pci.domain as i32,
            pci_bus: pci.bus as i32,
            pci_device: pci.device as i32,
        };
        Ok(Self {
            ordinal: ordinal as i32,
            name,
            identity,
            capability: Capability::of(gpu.capability),
            engine,
            memory,
            share,
            multiprocessors,
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

/// The ordinal that a PCI id names: `[domain:]bus:device[.function]`, in hexadecimal.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a text of another form, `CUDA_ERROR_INVALID_DEVICE` if no device has it.
pub fn by_pci_bus_id(text: &str, devices: &[Arc<Device>]) -> Result<i32> {
    let pci = parse_pci(text).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let place = (pci.domain as i32, pci.bus as i32, pci.device as i32);
    let same = |d: &&Arc<Device>| (d.identity.pci_domain, d.identity.pci_bus, d.identity.pci_device) == place;
    devices.iter().find(same).map(|d| d.ordinal).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

/// Devices for tests, with 1 MiB each and two workers.
#[cfg(test)]
pub fn for_tests(count: usize) -> Vec<Arc<Device>> {
    use softcuda_device::fleet::{Defaults, Fleet};
    let defaults =
        Defaults { name: "test".to_owned(), capability: (9, 0), memory: 1 << 20, multiprocessors: 2 };
    let fleet = Fleet::read(Some(&count.to_string()), &defaults).expect("a number");
    let config = crate::config::get();
    let make = |(i, gpu)| Arc::new(Device::new(i, gpu, None, config).expect("address space"));
    fleet.0.iter().enumerate().map(make).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_id_has_twelve_characters() {
        assert_eq!(for_tests(12)[11].pci_bus_id(), "0000:0C:00.0");
    }

    #[test]
    fn devices_are_told_apart() {
        let both = for_tests(2);
        assert_ne!(both[0].identity, both[1].identity);
        assert_eq!(both[0].pci_bus_id(), "0000:01:00.0");
        assert_eq!(by_pci_bus_id("0000:02:00.0", &both), Ok(1));
        assert_eq!(by_pci_bus_id("01:00", &both), Ok(0));
        assert_eq!(by_pci_bus_id("03:00.0", &both), Err(CUDA_ERROR_INVALID_DEVICE));
        assert_eq!(by_pci_bus_id("gpu", &both), Err(CUDA_ERROR_INVALID_VALUE));
    }
}

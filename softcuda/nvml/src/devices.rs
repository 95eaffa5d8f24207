//! What there is to tell.
#![forbid(unsafe_code)]

use crate::status::{Result, Status};
use softcuda_device::fleet::{Fleet, Gpu, Instance};
use softcuda_device::state::{self, Usage, View};
use softcuda_device::{home, now};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How many times `nvmlInit` was called and `nvmlShutdown` was not.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// A device or an instance: what an `nvmlDevice_t` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// Number in the fleet.
    pub gpu: usize,
    /// Number of the instance.
    pub instance: Option<usize>,
}

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What is taken.
    pub used: u64,
}

fn fleet() -> Option<&'static Fleet> {
    static FLEET: OnceLock<Option<Fleet>> = OnceLock::new();
    let read = || Fleet::from_environment().inspect_err(|error| eprintln!("softcuda: {error}")).ok();
    FLEET.get_or_init(read).as_ref()
}

/// `nvmlInit`.
///
/// # Errors
/// `DriverNotLoaded` if the fleet cannot be read.
pub fn init() -> Result {
    fleet().ok_or(Status::DriverNotLoaded)?;
    OPEN.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// `nvmlShutdown`.
///
/// # Errors
/// `Uninitialized`.
pub fn shut_down() -> Result {
    let close = |open: u32| open.checked_sub(1);
    OPEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, close).map(drop).map_err(|_| Status::Uninitialized)
}

/// The devices.
///
/// # Errors
/// `Uninitialized`.
pub fn gpus() -> Result<&'static [Gpu]> {
    if OPEN.load(Ordering::Acquire) == 0 {
        return Err(Status::Uninitialized);
    }
    fleet().map(|fleet| fleet.0.as_slice()).ok_or(Status::Uninitialized)
}

/// Where handles begin, so that 0 and stray numbers are none.
const FIRST: usize = 0x5dc0_0000;

impl Device {
    /// The device of a number.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn of_number(number: u32) -> Result<Device> {
        let gpu = number as usize;
        if gpu < gpus()?.len() { Ok(Device { gpu, instance: None }) } else { Err(Status::InvalidArgument) }
    }

    /// The device of a handle.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn of_handle(handle: usize) -> Result<Device> {
        let gpus = gpus()?;
        let number = handle.checked_sub(FIRST).ok_or(Status::InvalidArgument)?;
        let device = Device { gpu: number >> 4, instance: (number & 15).checked_sub(1) };
        let gpu = gpus.get(device.gpu).ok_or(Status::InvalidArgument)?;
        match device.instance {
            Some(instance) if instance >= gpu.instances.len() => Err(Status::InvalidArgument),
            _ => Ok(device),
        }
    }

    /// Its handle.
    pub fn handle(self) -> usize {
        FIRST + (self.gpu << 4) + self.instance.map_or(0, |instance| instance + 1)
    }

    /// The device or instance of a UUID, as it is written.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn of_uuid(text: &str) -> Result<Device> {
        for (gpu, found) in gpus()?.iter().enumerate() {
            let all = std::iter::once(None).chain((0..found.instances.len()).map(Some));
            for instance in all {
                let device = Device { gpu, instance };
                if device.uuid_text()? == text {
                    return Ok(device);
                }
            }
        }
        Err(Status::NotFound)
    }

    /// What the fleet says of it, or of the device that it is part of.
    ///
    /// # Errors
    /// `Uninitialized`.
    pub fn gpu(self) -> Result<&'static Gpu> {
        gpus()?.get(self.gpu).ok_or(Status::InvalidArgument)
    }

    /// What the fleet says of the instance.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none.
    pub fn instance(self) -> Result<&'static Instance> {
        let number = self.instance.ok_or(Status::InvalidArgument)?;
        self.gpu()?.instances.get(number).ok_or(Status::InvalidArgument)
    }

    /// Its UUID as NVIDIA writes it.
    ///
    /// # Errors
    /// As [`Device::gpu`].
    pub fn uuid_text(self) -> Result<String> {
        let prefix = if self.instance.is_some() { "MIG-" } else { "GPU-" };
        Ok(softcuda_device::fleet::uuid_text(prefix, &self.uuid()?))
    }

    fn uuid(self) -> Result<[u8; 16]> {
        if self.instance.is_some() { Ok(self.instance()?.uuid) } else { Ok(self.gpu()?.uuid) }
    }

    /// Its name.
    ///
    /// # Errors
    /// As [`Device::gpu`].
    pub fn name(self) -> Result<String> {
        let gpu = self.gpu()?;
        Ok(match self.instance {
            Some(_) => format!("{} MIG {}", gpu.name, self.instance()?.profile),
            None => gpu.name.clone(),
        })
    }

    /// The file of its use; none where nobody has used it and no file can be made.
    fn view(self) -> Option<View> {
        View::open(&state::directory(&home::directory()), &self.uuid().ok()?).ok()
    }

    /// It, and the instances that it consists of.
    fn parts(self) -> Result<Vec<Device>> {
        let count = if self.instance.is_none() { self.gpu()?.instances.len() } else { 0 };
        let instances = (0..count).map(|i| Device { gpu: self.gpu, instance: Some(i) });
        Ok(std::iter::once(self).chain(instances).collect())
    }

    /// Its memory.
    ///
    /// # Errors
    /// As [`Device::gpu`].
    pub fn memory(self) -> Result<Memory> {
        let total = if self.instance.is_some() { self.instance()?.memory } else { self.gpu()?.memory };
        let used: u64 = self.parts()?.iter().filter_map(|part| part.view()).map(|view| view.used()).sum();
        Ok(Memory { total, used: used.min(total) })
    }

    /// The processes that use it, with the number of their instance.
    ///
    /// # Errors
    /// As [`Device::gpu`].
    pub fn processes(self) -> Result<Vec<(Usage, Option<u32>)>> {
        let mut all = Vec::new();
        for part in self.parts()? {
            let number = part.instance.and_then(|_| part.instance().ok()).map(|i| i.number);
            all.extend(part.view().iter().flat_map(View::processes).map(|usage| (usage, number)));
        }
        Ok(all)
    }

    /// For what part of the time since the last question its kernels ran, in percent. Questions that come within 20 ms get the
    /// last answer; the first one waits for so long.
    ///
    /// # Errors
    /// `NotSupported` for instances, as in NVML.
    pub fn utilization(self) -> Result<u32> {
        if self.instance.is_some() {
            return Err(Status::NotSupported);
        }
        static SAMPLES: Mutex<Option<HashMap<Device, Sample>>> = Mutex::new(None);
        let parts = self.parts()?;
        let busy = || parts.iter().filter_map(|part| part.view()).map(|view| view.busy()).sum::<u64>();
        let mut samples = SAMPLES.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = samples.get_or_insert_with(HashMap::new);
        let last = *samples.entry(self).or_insert_with(|| {
            let first = Sample { time: now(), busy: busy(), percent: 0 };
            std::thread::sleep(WINDOW);
            first
        });
        let time = now();
        if u128::from(time - last.time) < WINDOW.as_nanos() {
            return Ok(last.percent);
        }
        let busy = busy();
        let percent = (busy.saturating_sub(last.busy) * 100 / (time - last.time)).min(100) as u32;
        samples.insert(self, Sample { time, busy, percent });
        Ok(percent)
    }
}

#[derive(Clone, Copy)]
struct Sample {
    time: u64,
    busy: u64,
    percent: u32,
}

const WINDOW: Duration = Duration::from_millis(20);

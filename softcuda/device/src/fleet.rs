//! Which devices there are.
//!
//! `SOFTCUDA_DEVICES` is a number of like devices, or the path of a TOML file:
//!
//! ```toml
//! [[device]]
//! count = 2                    # so many of these (1); PCI places and UUIDs then count on
//! name = "NVIDIA H200"
//! capability = "9.0"
//! memory = "8G"
//! multiprocessors = 4
//! pci = "0000:3b:00.0"
//! uuid = "GPU-5a0d6f1c-0000-4000-8000-000000000000"
//!
//! [[device.mig]]               # with instances, the device is in MIG mode and CUDA sees the instances
//! count = 2
//! profile = "1g.18gb"
//! memory = "1G"
//! multiprocessors = 1
//! uuid = "MIG-5a0d6f1c-0000-4000-8000-000000000100"
//! ```
//!
//! What is left out has the defaults of [`Defaults`]; the compute capability 8.9.

use serde::Deserialize;
use std::path::Path;

use crate::setting::{self, Settings, WrongSetting};

/// A place on the PCI bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pci {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device.
    pub device: u32,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// What it calls itself.
    pub name: String,
    /// Major and minor compute capability.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Where it is.
    pub pci: Pci,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its instances; with some, the device itself cannot be used.
    pub instances: Vec<Instance>,
}

/// One MIG instance: a GPU instance with one compute instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The name of its profile, such as `1g.18gb`.
    pub profile: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Number of the GPU instance.
    pub number: u32,
}

/// A device that CUDA sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visible {
    /// Which device of the fleet.
    pub gpu: usize,
    /// Which of its instances.
    pub instance: Option<usize>,
}

/// What a device has that the file does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// Name.
    pub name: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
}

impl Defaults {
    /// What `SOFTCUDA_MEMORY` (4 GiB, or half of the machine's memory if that is less) and `SOFTCUDA_WORKERS` (one a core)
    /// say.
    pub fn read(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> Defaults {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let info = rustix::system::sysinfo();
        let half = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)) / 2;
        Defaults {
            name: "softcuda (CPU)".to_owned(),
            capability: (8, 9),
            memory: settings.bytes("SOFTCUDA_MEMORY", 1 << 20).unwrap_or((4 << 30).min(half)).max(1 << 20),
            multiprocessors: settings.number("SOFTCUDA_WORKERS", 1..=1024).unwrap_or(cores).clamp(1, 1024)
                as u32,
        }
    }
}

/// Why a fleet cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The file cannot be read.
    #[error("SOFTCUDA_DEVICES: {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no TOML of this kind.
    #[error("SOFTCUDA_DEVICES: {path}: {source}")]
    Parse {
        /// Which file.
        path: String,
        /// Why.
        source: Box<toml::de::Error>,
    },
    /// Another setting that means nothing.
    #[error(transparent)]
    Setting(#[from] WrongSetting),
    /// A value that means nothing.
    #[error("SOFTCUDA_DEVICES: `{value}` is no {what}")]
    Value {
        /// What is written.
        value: String,
        /// What it should be.
        what: &'static str,
    },
}

/// Devices that a fleet has at most.
const MOST: usize = 64;
/// Instances that a device has at most.
const MOST_INSTANCES: usize = 7;
/// What a count should be that does not fit.
const DEVICES: &str = "number of devices from 1 to 64";
const INSTANCES: &str = "number of a device's MIG instances from 0 to 7";

/// The devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet(pub Vec<Gpu>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<DeviceEntry>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DeviceEntry {
    count: Option<usize>,
    name: Option<String>,
    capability: Option<String>,
    memory: Option<String>,
    multiprocessors: Option<u32>,
    pci: Option<String>,
    uuid: Option<String>,
    #[serde(default)]
    mig: Vec<InstanceEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceEntry {
    count: Option<usize>,
    profile: String,
    memory: Option<String>,
    multiprocessors: Option<u32>,
    uuid: Option<String>,
}

impl Fleet {
    /// The fleet that `SOFTCUDA_DEVICES` says; one device without it.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn read(setting: Option<&str>, defaults: &Defaults) -> Result<Fleet, FleetError> {
        let setting = setting.map_or("1", str::trim);
        if let Ok(count) = setting.parse::<usize>() {
            if !(1..=MOST).contains(&count) {
                return Err(wrong(setting, DEVICES));
            }
            let entry = DeviceEntry { count: Some(count), ..DeviceEntry::default() };
            return Self::of(vec![entry], defaults);
        }
        if !setting.contains('/') && !setting.ends_with(".toml") {
            let value = setting.to_owned();
            return Err(FleetError::Value { value, what: "number of devices and no path of a TOML file" });
        }
        let path = setting.to_owned();
        let text = std::fs::read_to_string(Path::new(setting))
            .map_err(|source| FleetError::Read { path: path.clone(), source })?;
        let file: File =
            toml::from_str(&text).map_err(|source| FleetError::Parse { path, source: Box::new(source) })?;
        Self::of(file.device, defaults)
    }

    fn of(entries: Vec<DeviceEntry>, defaults: &Defaults) -> Result<Fleet, FleetError> {
        let mut all = Vec::new();
        for entry in entries {
            for turn in 0..entry.count.unwrap_or(1) {
                if all.len() == MOST {
                    return Err(wrong(&format!("{} and more", MOST + 1), DEVICES));
                }
                all.push(entry.gpu(turn as u32, all.len(), defaults)?);
            }
        }
        Ok(Fleet(all))
    }

    /// The fleet of this process's environment.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn from_environment() -> Result<Fleet, FleetError> {
        let mut settings = Settings::new(|name: &str| std::env::var(name).ok());
        let defaults = Defaults::read(&mut settings);
        let devices = settings.text("SOFTCUDA_DEVICES");
        match settings.wrong() {
            Some(wrong) => Err(wrong.into()),
            None => Self::read(devices.as_deref(), &defaults),
        }
    }

    /// The devices that CUDA sees, by `CUDA_VISIBLE_DEVICES`, in its order. As with NVIDIA's driver the list ends at its
    /// first entry that is none, and at one that was named before. A device with instances is none itself: its number
    /// means the first instance, and a process sees one instance only, which comes alone.
    pub fn visible(&self, list: Option<&str>) -> Vec<Visible> {
        let usable = |gpu: usize| {
            let instance = if self.0[gpu].instances.is_empty() { None } else { Some(0) };
            Visible { gpu, instance }
        };
        let Some(list) = list else { return only(self.all().map(usable).collect()) };
        let mut chosen = Vec::new();
        for entry in list.split(',').map(str::trim) {
            match self.named(entry).map(|(gpu, instance)| instance.unwrap_or_else(|| usable(gpu))) {
                Some(visible) if !chosen.contains(&visible) => chosen.push(visible),
                _ => break,
            }
        }
        only(chosen)
    }

    fn all(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.0.len()
    }

    /// What an entry names: a device, and an instance if it names one.
    fn named(&self, entry: &str) -> Option<(usize, Option<Visible>)> {
        if let Some(text) = entry.strip_prefix("GPU-") {
            let same = self.all().filter(|gpu| begins(&self.0[*gpu].uuid, text));
            return single(same).map(|gpu| (gpu, None));
        }
        if let Some(text) = entry.strip_prefix("MIG-") {
            // The old form names the device and two numbers: MIG-GPU-<uuid>/<GPU instance>/<compute instance>.
            if let Some(old) = text.strip_prefix("GPU-") {
                let mut parts = old.split('/');
                let (uuid, number) = (parts.next()?, parts.next()?.parse::<u32>().ok()?);
                let gpu = single(self.all().filter(|gpu| begins(&self.0[*gpu].uuid, uuid)))?;
                let instance = self.0[gpu].instances.iter().position(|i| i.number == number);
                return (parts.next()? == "0")
                    .then_some((gpu, Some(Visible { gpu, instance: Some(instance?) })));
            }
            let every = self.all().flat_map(|gpu| (0..self.0[gpu].instances.len()).map(move |i| (gpu, i)));
            let (gpu, instance) =
                single(every.filter(|(gpu, i)| begins(&self.0[*gpu].instances[*i].uuid, text)))?;
            return Some((gpu, Some(Visible { gpu, instance: Some(instance) })));
        }
        entry.parse().ok().filter(|gpu| *gpu < self.0.len()).map(|gpu| (gpu, None))
    }
}

/// A process that sees an instance sees nothing else, as in CUDA.
fn only(mut chosen: Vec<Visible>) -> Vec<Visible> {
    if let Some(first) = chosen.iter().position(|v| v.instance.is_some()) {
        if first == 0 {
            chosen.truncate(1);
        } else {
            chosen.retain(|v| v.instance.is_none());
        }
    }
    chosen
}

fn single<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// Whether a UUID begins with these digits, hyphens apart; some there must be.
fn begins(uuid: &[u8; 16], text: &str) -> bool {
    let digits = text.replace('-', "").to_ascii_lowercase();
    let whole: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    !digits.is_empty() && whole.starts_with(&digits)
}

impl DeviceEntry {
    fn gpu(&self, turn: u32, number: usize, defaults: &Defaults) -> Result<Gpu, FleetError> {
        let mut pci = match &self.pci {
            Some(text) => parse_pci(text).ok_or_else(|| wrong(text, "place on the PCI bus"))?,
            None => Pci { domain: 0, bus: number as u32 + 1, device: 0 },
        };
        if self.pci.is_some() {
            pci.bus += turn;
        }
        let uuid = match &self.uuid {
            Some(text) => plus(parse_uuid(text, "GPU-")?, turn),
            None => default_uuid(number as u8),
        };
        let mut gpu = Gpu {
            name: self.name.clone().unwrap_or_else(|| defaults.name.clone()),
            capability: self.capability.as_deref().map_or(Ok(defaults.capability), parse_capability)?,
            memory: self.memory.as_deref().map_or(Ok(defaults.memory), parse_bytes)?,
            multiprocessors: self.multiprocessors.unwrap_or(defaults.multiprocessors).max(1),
            pci,
            uuid,
            instances: Vec::new(),
        };
        for entry in &self.mig {
            for turn in 0..entry.count.unwrap_or(1) {
                if gpu.instances.len() == MOST_INSTANCES {
                    return Err(wrong(&format!("{} and more", MOST_INSTANCES + 1), INSTANCES));
                }
                gpu.instances.push(entry.instance(turn as u32, &gpu)?);
            }
        }
        Ok(gpu)
    }
}

impl InstanceEntry {
    fn instance(&self, turn: u32, gpu: &Gpu) -> Result<Instance, FleetError> {
        let number = gpu.instances.len() as u32 + 1;
        let uuid = match &self.uuid {
            Some(text) => plus(parse_uuid(text, "MIG-")?, turn),
            None => {
                // The device's, with the number where its own UUIDs have 0.
                let mut uuid = gpu.uuid;
                uuid[14] = number as u8;
                uuid
            }
        };
        let share = |whole: u64| (whole / MOST_INSTANCES as u64).max(1);
        Ok(Instance {
            profile: self.profile.clone(),
            memory: self.memory.as_deref().map_or(Ok(share(gpu.memory)), parse_bytes)?,
            multiprocessors: self
                .multiprocessors
                .unwrap_or(share(u64::from(gpu.multiprocessors)) as u32)
                .max(1),
            uuid,
            number,
        })
    }
}

fn wrong(value: &str, what: &'static str) -> FleetError {
    FleetError::Value { value: value.to_owned(), what }
}

/// The UUID of the device of a number that has none of its own: the same in every process and on every run.
pub fn default_uuid(number: u8) -> [u8; 16] {
    let mut uuid = *b"softcuda-cpu-\x40\x80\0";
    (uuid[14], uuid[15]) = (0, number);
    uuid
}

fn plus(mut uuid: [u8; 16], turn: u32) -> [u8; 16] {
    uuid[15] = uuid[15].wrapping_add(turn as u8);
    uuid
}

fn parse_capability(text: &str) -> Result<(u32, u32), FleetError> {
    let parts = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parts
        .filter(|(major, minor)| (5..=12).contains(major) && *minor < 10)
        .ok_or_else(|| wrong(text, "compute capability"))
}

/// A number of bytes with an optional K, M or G.
fn parse_bytes(text: &str) -> Result<u64, FleetError> {
    setting::bytes(text).ok_or_else(|| wrong(text, "number of bytes"))
}

/// `[domain:]bus:device[.function]`, in hexadecimal; the function must be 0.
pub fn parse_pci(text: &str) -> Option<Pci> {
    let (place, function) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let hex = |part: &str| u32::from_str_radix(part, 16).ok();
    let parts: Vec<u32> = place.split(':').map(hex).collect::<Option<_>>()?;
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (domain, bus, device),
        [bus, device] => (0, bus, device),
        _ => return None,
    };
    (hex(function) == Some(0)).then_some(Pci { domain, bus, device })
}

fn parse_uuid(text: &str, prefix: &'static str) -> Result<[u8; 16], FleetError> {
    let digits = text.strip_prefix(prefix).unwrap_or(text).replace('-', "");
    let bytes: Option<Vec<u8>> = (0..digits.len() / 2)
        .map(|i| digits.get(2 * i..2 * i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect();
    let bytes = bytes.filter(|_| digits.len() == 32).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| wrong(text, "UUID"))
}

/// A UUID as NVIDIA writes it, behind `GPU-` or `MIG-`.
pub fn uuid_text(prefix: &str, uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults {
        Defaults { name: "cpu".into(), capability: (8, 9), memory: 1 << 30, multiprocessors: 14 }
    }

    fn from(text: &str) -> Result<Fleet, FleetError> {
        let file: File = toml::from_str(text).unwrap();
        Fleet::of(file.device, &defaults())
    }

    #[test]
    fn a_number_makes_like_devices_that_can_be_told_apart() {
        let fleet = Fleet::read(Some("3"), &defaults()).unwrap();
        let places: Vec<_> = fleet.0.iter().map(|gpu| (gpu.pci.bus, gpu.uuid[15])).collect();
        assert_eq!(places, [(1, 0), (2, 1), (3, 2)]);
        assert_eq!(fleet.0[2].capability, (8, 9));
        assert!(matches!(Fleet::read(Some("many"), &defaults()), Err(FleetError::Value { .. })));
        for none in ["0", "65", "18446744073709551615"] {
            let said = Fleet::read(Some(none), &defaults()).unwrap_err().to_string();
            assert!(said.contains(none) && said.contains("from 1 to 64"), "{said}");
        }
        assert!(matches!(Fleet::read(Some("/no/such.toml"), &defaults()), Err(FleetError::Read { .. })));
    }

    #[test]
    fn more_than_there_can_be_is_said_at_once() {
        for text in ["[[device]]\ncount = 65", "[[device]]\ncount = 9223372036854775807"] {
            let said = from(text).unwrap_err().to_string();
            assert!(said.contains("65 and more") && said.contains("from 1 to 64"), "{said}");
        }
        let said = from("[[device]]\n[[device.mig]]\nprofile = \"1g.5gb\"\ncount = 9223372036854775807");
        assert!(said.unwrap_err().to_string().contains("8 and more"));
        assert_eq!(from("[[device]]\ncount = 64").unwrap().0.len(), 64);
    }

    const MIXED: &str = r#"
        [[device]]
        count = 2
        name = "A"
        capability = "12.0"
        memory = "2G"
        pci = "0000:3b:00.0"
        uuid = "GPU-5a000000-0000-4000-8000-000000000010"
        [[device]]
        name = "B"
        [[device.mig]]
        count = 2
        profile = "1g.5gb"
        memory = "100M"
        [[device.mig]]
        profile = "3g.20gb"
        multiprocessors = 6
    "#;

    #[test]
    fn a_file_says_what_each_device_is() {
        let fleet = from(MIXED).unwrap();
        assert_eq!(fleet.0.len(), 3);
        assert_eq!((fleet.0[1].pci.bus, fleet.0[1].uuid[15]), (0x3c, 0x11));
        assert_eq!((fleet.0[1].capability, fleet.0[1].memory), ((12, 0), 2 << 30));
        let b = &fleet.0[2];
        assert_eq!((b.pci.bus, b.instances.len()), (3, 3));
        assert_eq!((b.instances[0].memory, b.instances[0].multiprocessors), (100 << 20, 2));
        assert_eq!((b.instances[2].multiprocessors, b.instances[2].number), (6, 3));
        for bad in [r#"capability = "x""#, r#"memory = "much""#, r#"uuid = "GPU-1""#, r#"pci = "here""#] {
            assert!(from(&format!("[[device]]\n{bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn visible_devices_are_chosen_as_by_nvidias_driver() {
        let fleet = from(MIXED).unwrap();
        let see = |list| -> Vec<_> { fleet.visible(list).iter().map(|v| (v.gpu, v.instance)).collect() };
        assert_eq!(see(None), [(0, None), (1, None)], "instances come alone");
        assert_eq!(see(Some("1,0")), [(1, None), (0, None)]);
        assert_eq!(see(Some("1,7,0")), [(1, None)], "the list ends at what is no device");
        assert_eq!(see(Some("1,1,0")), [(1, None)], "and at a device that is named twice");
        assert_eq!(see(Some("2,0")), [(2, Some(0))], "the first instance, alone");
        assert_eq!(see(Some("GPU-5a000000-0000-4000-8000-000000000011")), [(1, None)]);
        for none in ["", "-1", "GPU-5a", "GPU-", "x", "MIG-", "MIG-ffff"] {
            assert!(see(Some(none)).is_empty(), "{none}");
        }
        let second = uuid_text("MIG-", &fleet.0[2].instances[1].uuid);
        assert_eq!(see(Some(&second)), [(2, Some(1))]);
        let old = format!("MIG-{}/3/0", uuid_text("GPU-", &fleet.0[2].uuid));
        assert_eq!(see(Some(&old)), [(2, Some(2))]);
    }

    #[test]
    fn uuids_are_written_as_nvidia_does() {
        let uuid = parse_uuid("GPU-5a0d6f1c-0001-4002-8003-000000000004", "GPU-").unwrap();
        assert_eq!(uuid_text("GPU-", &uuid), "GPU-5a0d6f1c-0001-4002-8003-000000000004");
    }
}

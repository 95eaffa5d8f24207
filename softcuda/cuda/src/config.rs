//! What the environment says about the devices to present. Read once, by `cuInit` or by the first question for the
//! version.
//!
//! - `SOFTCUDA_DEVICES`: how many devices (default 1, at most 16).
//! - `SOFTCUDA_MEMORY`: bytes of device memory each, with an optional K, M or G (default 4 GiB, or half of the machine's
//!   memory if that is less).
//! - `SOFTCUDA_VMM_HINT`: `refuse` places every `cuMemAddressReserve` elsewhere than its hint says.
//! - `SOFTCUDA_DRIVER_VERSION`: the version that `cuDriverGetVersion` answers, 1000 × major + 10 × minor, no newer than
//!   this library's.
//! - `CUDA_VISIBLE_DEVICES`: as NVIDIA's driver reads it, numbers or (the beginnings of) `GPU-…` UUIDs.
//! - `CUDA_MODULE_LOADING`: `EAGER` is what `cuModuleGetLoadingMode` then answers; images are read at once in any case.
//! - `SOFTCUDA_WORKERS`: how many threads run the blocks of a grid (default: one a core).
//! - `SOFTCUDA_CACHE`, `SOFTCUDA_CACHE_SIZE`: see [`crate::code_cache`].
#![forbid(unsafe_code)]

use std::sync::OnceLock;

/// The newest version that this library knows, which its types come from.
pub const NEWEST_VERSION: i32 = 13040;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Number of devices.
    pub devices: usize,
    /// Bytes of memory of each.
    pub memory: u64,
    /// What `cuDriverGetVersion` answers.
    pub driver_version: i32,
    /// Threads that run grids, for each device.
    pub workers: usize,
    /// `CUDA_VISIBLE_DEVICES`, if it is set.
    pub visible: Option<String>,
    /// `CUDA_MODULE_LOADING` is `EAGER`.
    pub eager: bool,
    /// `SOFTCUDA_VMM_HINT` is `refuse`.
    pub refuse_hints: bool,
}

impl Config {
    /// The devices to present, in their order, of those whose UUIDs are given. As with NVIDIA's driver the list ends at
    /// its first entry that is none, and at one that was named before.
    pub fn visible(&self, uuids: &[[u8; 16]]) -> Vec<usize> {
        let Some(list) = &self.visible else { return (0..uuids.len()).collect() };
        let mut chosen = Vec::new();
        for entry in list.split(',').map(str::trim) {
            let index = match entry.strip_prefix("GPU-") {
                Some(text) => {
                    let digits = text.replace('-', "").to_ascii_lowercase();
                    let mut same = (0..uuids.len())
                        .filter(|i| !digits.is_empty() && hex(&uuids[*i]).starts_with(&digits));
                    same.next().filter(|_| same.next().is_none())
                }
                None => entry.parse().ok().filter(|i| *i < uuids.len()),
            };
            match index {
                Some(index) if !chosen.contains(&index) => chosen.push(index),
                _ => break,
            }
        }
        chosen
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The configuration of this process.
pub fn get() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| read(|name| std::env::var(name).ok(), half_of_memory()))
}

fn read(variable: impl Fn(&str) -> Option<String>, half_of_memory: u64) -> Config {
    let number = |name: &str| variable(name).and_then(|text| bytes(&text));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let version = number("SOFTCUDA_DRIVER_VERSION").and_then(|v| i32::try_from(v).ok());
    Config {
        devices: number("SOFTCUDA_DEVICES").map_or(1, |n| n.clamp(1, 16) as usize),
        memory: number("SOFTCUDA_MEMORY").unwrap_or((4 << 30).min(half_of_memory)).max(1 << 20),
        driver_version: version.filter(|v| (11000..=NEWEST_VERSION).contains(v)).unwrap_or(NEWEST_VERSION),
        workers: number("SOFTCUDA_WORKERS").map_or(cores, |n| n.clamp(1, 1024) as usize),
        visible: variable("CUDA_VISIBLE_DEVICES"),
        eager: variable("CUDA_MODULE_LOADING").is_some_and(|mode| mode.eq_ignore_ascii_case("EAGER")),
        refuse_hints: variable("SOFTCUDA_VMM_HINT").is_some_and(|hint| hint == "refuse"),
    }
}

/// A number with an optional unit.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], 10),
        'm' | 'M' => (&text[..text.len() - 1], 20),
        'g' | 'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn half_of_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_units_and_nonsense() {
        let with = |pairs: &'static [(&str, &str)]| {
            read(move |name| pairs.iter().find(|p| p.0 == name).map(|p| p.1.to_owned()), 1 << 40)
        };
        let plain = with(&[]);
        assert_eq!((plain.devices, plain.memory, plain.driver_version), (1, 4 << 30, NEWEST_VERSION));
        let set = with(&[
            ("SOFTCUDA_DEVICES", "3"),
            ("SOFTCUDA_MEMORY", " 512M"),
            ("SOFTCUDA_DRIVER_VERSION", "12040"),
        ]);
        assert_eq!((set.devices, set.memory, set.driver_version), (3, 512 << 20, 12040));
        let odd = with(&[
            ("SOFTCUDA_DEVICES", "0"),
            ("SOFTCUDA_MEMORY", "lots"),
            ("SOFTCUDA_DRIVER_VERSION", "99990"),
        ]);
        assert_eq!((odd.devices, odd.memory, odd.driver_version), (1, 4 << 30, NEWEST_VERSION));
        assert_eq!(read(|_| None, 1 << 30).memory, 1 << 30);
    }

    #[test]
    fn visible_devices() {
        let uuids = [[0xab; 16], [0xac; 16], [0x01; 16]];
        let with = |list: Option<&str>| {
            read(|name| if name == "CUDA_VISIBLE_DEVICES" { list.map(str::to_owned) } else { None }, 1 << 40)
                .visible(&uuids)
        };
        assert_eq!(with(None), [0, 1, 2]);
        assert_eq!(with(Some("2,0")), [2, 0]);
        assert_eq!(with(Some("GPU-01, GPU-abab")), [2, 0]);
        assert_eq!(with(Some("1,7,0")), [1], "the list ends at what is no device");
        assert_eq!(with(Some("1,1,0")), [1], "and at a device that is named twice");
        for none in ["", "-1", "GPU-a", "GPU-", "x"] {
            assert!(with(Some(none)).is_empty(), "{none}");
        }
    }
}

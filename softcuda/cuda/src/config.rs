//! What the environment says about the devices to present. Read once, by `cuInit` or by the first question for the
//! version. One that means nothing has `cuInit` say so and answer `CUDA_ERROR_NO_DEVICE`.
//!
//! - `SOFTCUDA_DEVICES`: how many devices, or a file that says which: see [`softcuda_device::fleet`].
//! - `SOFTCUDA_MEMORY`: bytes of device memory each, with an optional K, M or G (default 4 GiB, or half of the machine's
//!   memory if that is less).
//! - `SOFTCUDA_VMM_HINT`: `refuse` places every `cuMemAddressReserve` elsewhere than its hint says.
//! - `SOFTCUDA_ADDRESSES`: `others` gives memory at other addresses than usual, and others in each process.
//! - `SOFTCUDA_DRIVER_VERSION`: the version that `cuDriverGetVersion` answers, 1000 × major + 10 × minor, no newer than
//!   this library's.
//! - `CUDA_VISIBLE_DEVICES`: as NVIDIA's driver reads it: numbers, (the beginnings of) `GPU-…` and `MIG-…` UUIDs.
//! - `CUDA_MODULE_LOADING`: `EAGER` is what `cuModuleGetLoadingMode` then answers; images are read at once in any case.
//! - `SOFTCUDA_WORKERS`: how many threads run the blocks of a grid (default: one a core).
//! - `SOFTCUDA_TIMESLICE_US`: for how long a process keeps a device that another one wants (default 2000).
//! - `SOFTCUDA_PRIORITY`: `normal` has the device's threads compete with the machine's programs as equals; by default they
//!   run only when nothing else wants the processor.
//! - `SOFTCUDA_SLOW`: how many times as long every kernel, copy and memory set takes (default 1), also in graphs.
//! - `SOFTCUDA_CACHE`, `SOFTCUDA_CACHE_SIZE`: see [`crate::code_cache`].
//! - `SOFTCUDA_SASS`: `skip` accepts machine code, and runs its kernels as ones that do nothing: for exercising call paths.
//! - `SOFTCUDA_FAIL`: see [`crate::failures`]. `SOFTCUDA_LOG`: see [`crate::log`].
#![forbid(unsafe_code)]

use softcuda_device::fleet::{Defaults, Fleet, FleetError, Visible};
use softcuda_device::setting::Settings;
use softcuda_engine::Addresses;
use std::sync::OnceLock;

use crate::code_cache;

/// The newest version that this library knows, which its types come from.
pub const NEWEST_VERSION: i32 = 13040;

/// See the module.
#[derive(Debug)]
pub struct Config {
    /// The devices that there are.
    pub fleet: Result<Fleet, FleetError>,
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
    /// `SOFTCUDA_ADDRESSES`.
    pub addresses: Addresses,
    /// `SOFTCUDA_TIMESLICE_US`, in nanoseconds.
    pub slice: u64,
    /// `SOFTCUDA_SLOW`: at least 1.
    pub slow: f64,
    /// `SOFTCUDA_PRIORITY` is not `normal`: the device's threads take what processor time is left over.
    pub idle: bool,
    /// `SOFTCUDA_SASS` is `skip`.
    pub skip_machine_code: bool,
}

impl Config {
    /// The devices of a fleet that are presented, in their order.
    pub fn visible(&self, fleet: &Fleet) -> Vec<Visible> {
        fleet.visible(self.visible.as_deref())
    }
}

/// The configuration of this process.
pub fn get() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| read(|name| std::env::var(name).ok()))
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Config {
    let mut settings = Settings::new(&variable);
    let defaults = Defaults::read(&mut settings);
    let version = settings.number("SOFTCUDA_DRIVER_VERSION", 11_000..=NEWEST_VERSION as u64);
    let slice = settings.number("SOFTCUDA_TIMESLICE_US", 1..=10_000_000);
    let slow = settings.factor("SOFTCUDA_SLOW", 1.0..=1e6);
    let refuse_hints = settings.is("SOFTCUDA_VMM_HINT", "refuse", "honour");
    let other_addresses = settings.is("SOFTCUDA_ADDRESSES", "others", "usual");
    let normal = settings.is("SOFTCUDA_PRIORITY", "normal", "idle");
    let skip_machine_code = settings.is("SOFTCUDA_SASS", "skip", "refuse");
    let _ = code_cache::size(&mut settings);
    let devices = settings.text("SOFTCUDA_DEVICES");
    Config {
        fleet: match settings.wrong() {
            Some(wrong) => Err(wrong.into()),
            None => Fleet::read(devices.as_deref(), &defaults),
        },
        driver_version: version.map_or(NEWEST_VERSION, |version| version as i32),
        workers: defaults.multiprocessors as usize,
        visible: variable("CUDA_VISIBLE_DEVICES"),
        eager: variable("CUDA_MODULE_LOADING").is_some_and(|mode| mode.eq_ignore_ascii_case("EAGER")),
        refuse_hints,
        addresses: if other_addresses { Addresses::Others } else { Addresses::Usual },
        slice: slice.unwrap_or(2000) * 1000,
        slow: slow.unwrap_or(1.0),
        idle: !normal,
        skip_machine_code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_units() {
        let with = |pairs: &'static [(&str, &str)]| {
            let config = read(move |name| pairs.iter().find(|p| p.0 == name).map(|p| p.1.to_owned()));
            let fleet = config.fleet.as_ref().unwrap().clone();
            (fleet.0.len(), fleet.0[0].memory, config.driver_version, config.slice)
        };
        let plain = with(&[]);
        assert!((1 << 20..=4 << 30).contains(&plain.1));
        assert_eq!((plain.0, plain.2, plain.3), (1, NEWEST_VERSION, 2_000_000));
        let set = with(&[
            ("SOFTCUDA_DEVICES", "3"),
            ("SOFTCUDA_MEMORY", " 512M"),
            ("SOFTCUDA_DRIVER_VERSION", "12040"),
            ("SOFTCUDA_TIMESLICE_US", "50"),
        ]);
        assert_eq!(set, (3, 512 << 20, 12040, 50_000));
        assert!(read(|name| (name == "SOFTCUDA_DEVICES").then(|| "/none.toml".to_owned())).fleet.is_err());
    }

    #[test]
    fn nonsense_is_said() {
        let wrong = [
            ("SOFTCUDA_DEVICES", "0"),
            ("SOFTCUDA_MEMORY", "lots"),
            ("SOFTCUDA_MEMORY", "1"),
            ("SOFTCUDA_WORKERS", "-1"),
            ("SOFTCUDA_DRIVER_VERSION", "99990"),
            ("SOFTCUDA_TIMESLICE_US", "0"),
            ("SOFTCUDA_SLOW", "0.5"),
            ("SOFTCUDA_VMM_HINT", "never"),
            ("SOFTCUDA_ADDRESSES", "odd"),
            ("SOFTCUDA_PRIORITY", "high"),
            ("SOFTCUDA_SASS", "run"),
            ("SOFTCUDA_CACHE_SIZE", "much"),
        ];
        for (name, value) in wrong {
            let config = read(|asked| (asked == name).then(|| value.to_owned()));
            let said = config.fleet.unwrap_err().to_string();
            assert!(said.starts_with(&format!("{name}: `{value}` is no ")), "{said}");
        }
    }
}

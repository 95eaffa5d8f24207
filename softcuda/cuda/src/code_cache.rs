//! Where compiled kernels are kept across processes.
//!
//! - `SOFTCUDA_CACHE`: the directory (an absolute path), or `off`. Default: `softcuda` below `$XDG_CACHE_HOME`, or below
//!   `$HOME/.cache`. It must be this user's alone; else it is not used.
//! - `SOFTCUDA_CACHE_SIZE`: how many bytes may be kept, with an optional K, M or G (default 256 MiB).
#![forbid(unsafe_code)]

use softcuda_device::setting::Settings;
use softcuda_engine::CodeCache;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The cache of this process; `None` if there shall be none, or no place for one is known.
pub fn get() -> Option<Arc<CodeCache>> {
    static CACHE: OnceLock<Option<Arc<CodeCache>>> = OnceLock::new();
    let make =
        || read(|name| std::env::var(name).ok()).map(|(path, size)| Arc::new(CodeCache::new(path, size)));
    CACHE.get_or_init(make).clone()
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Option<(PathBuf, u64)> {
    let place = match variable("SOFTCUDA_CACHE").filter(|v| !v.is_empty()) {
        Some(v) if v.eq_ignore_ascii_case("off") => return None,
        Some(path) => PathBuf::from(path),
        None => {
            let below = |name: &str, rest: &str| {
                variable(name).filter(|v| !v.is_empty()).map(|v| PathBuf::from(v).join(rest))
            };
            below("XDG_CACHE_HOME", "softcuda").or_else(|| below("HOME", ".cache/softcuda"))?
        }
    };
    let size = size(&mut Settings::new(variable));
    place.is_absolute().then_some((place, size))
}

/// How many bytes may be kept.
pub fn size(settings: &mut Settings<impl Fn(&str) -> Option<String>>) -> u64 {
    settings.bytes("SOFTCUDA_CACHE_SIZE", 0).unwrap_or(256 << 20)
}

#[cfg(test)]
mod tests {
    use super::read;
    use std::path::PathBuf;

    #[test]
    fn places_sizes_and_nonsense() {
        let with = |pairs: &'static [(&str, &str)]| {
            read(move |name| pairs.iter().find(|p| p.0 == name).map(|p| p.1.to_owned()))
        };
        let home = |size| Some((PathBuf::from("/home/a/.cache/softcuda"), size));
        assert_eq!(with(&[("HOME", "/home/a")]), home(256 << 20));
        assert_eq!(with(&[("HOME", "/home/a"), ("SOFTCUDA_CACHE_SIZE", "5M")]), home(5 << 20));
        assert_eq!(with(&[("HOME", "/home/a"), ("SOFTCUDA_CACHE_SIZE", "much")]), home(256 << 20));
        let xdg = with(&[("HOME", "/home/a"), ("XDG_CACHE_HOME", "/x")]);
        assert_eq!(xdg.unwrap().0, PathBuf::from("/x/softcuda"));
        let own = with(&[("HOME", "/home/a"), ("SOFTCUDA_CACHE", "/own")]);
        assert_eq!(own.unwrap().0, PathBuf::from("/own"));
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("HOME", "/home/a"), ("SOFTCUDA_CACHE", "off")]), None);
        assert_eq!(with(&[("SOFTCUDA_CACHE", "relative")]), None);
        assert_eq!(with(&[("HOME", "")]), None);
    }
}

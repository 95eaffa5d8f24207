//! The driver's version, and which of our symbols `cuGetProcAddress` gives for a name.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use cuda_abi::symbols::{self, Refusal};
use gpupool_protocol::config::ClientConfig;

use crate::code::{Answer, INVALID_VALUE};
use crate::cptr::Ptr;
use crate::exports::{self, Address};
use crate::log::say;
use crate::session;

/// What `cuGetProcAddress_v2` says beside the address (CUdriverProcAddressQueryResult).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// The address is the symbol's.
    Found = 0,
    /// There is no such symbol here.
    NotFound = 1,
    /// The symbol is newer than the version asked for.
    TooNew = 2,
}

/// The driver version that this process is told.
static TOLD: Told = Told(OnceLock::new());

/// The session's driver version; before `cuInit` what the pool says to a version probe, and without an answer the
/// newest that is known: `cuInit` will report why.
pub fn driver() -> i32 {
    TOLD.version(session::driver_version, probe)
}

/// A version that was told once stays, also where a server answers at last after a probe that found none: CUDA's runtime
/// keeps the version that it was told first, and takes a driver that tells it another for one that is not genuine.
struct Told(OnceLock<i32>);

impl Told {
    fn version(&self, session: impl FnOnce() -> Option<i32>, probe: impl FnOnce() -> i32) -> i32 {
        *self.0.get_or_init(|| session().unwrap_or_else(probe))
    }
}

fn probe() -> i32 {
    let newest = || symbols::ROWS.iter().map(|row| row.version).max().unwrap_or(0);
    let config = match ClientConfig::load() {
        Ok(config) => config,
        Err(error) => {
            say!(Warn, "no version probe: {error}");
            return newest();
        }
    };
    match gpupool_protocol::control::driver_version(&config) {
        Ok(version) => version as i32,
        Err(error) => {
            say!(Warn, "no version probe: {error}");
            newest()
        }
    }
}

/// The address for a name, with its status. A symbol that exists and is not supported is not found.
#[inline(always)]
pub fn look_up(
    symbol: Ptr<c_char>,
    pfn: Ptr<*mut c_void>,
    version: i32,
    flags: u64,
) -> Answer<(*mut c_void, Status)> {
    let base = symbol.bytes()?.to_bytes();
    pfn.not_null()?;
    Ok(match resolve(base, version, flags, driver())? {
        Ok(address) => (address.0.cast_mut(), Status::Found),
        Err(status) => (ptr::null_mut(), status),
    })
}

/// The same as a function of its inputs alone.
#[inline(always)]
fn resolve(base: &[u8], version: i32, flags: u64, driver: i32) -> Answer<Result<Address, Status>> {
    match exports::addresses().find(base, version, flags, driver) {
        Ok(address) => Ok(Ok(address)),
        Err(Refusal::NotFound) => Ok(Err(Status::NotFound)),
        Err(Refusal::VersionNotSufficient) => Ok(Err(Status::TooNew)),
        Err(Refusal::InvalidValue) => Err(INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpupool_protocol::api::SYMBOLS;
    use std::collections::{HashMap, HashSet};

    fn resolved(base: &str, version: i32, flags: u64, driver: i32) -> Answer<Result<Address, Status>> {
        resolve(base.as_bytes(), version, flags, driver)
    }

    /// Every symbol × the versions around each that its name knows × every flag.
    #[test]
    fn every_symbol_at_every_version_under_every_flag() {
        let ours: HashSet<&str> = SYMBOLS.iter().map(|s| s.symbol).collect();
        let driver = 13050;
        let mut found = HashMap::new();
        let mut asked = 0;
        for row in &symbols::ROWS {
            for version in
                symbols::rows_of(row.base).iter().flat_map(|r| [r.version - 1, r.version]).chain([driver])
            {
                for flags in [0, symbols::FLAG_LEGACY, symbols::FLAG_PER_THREAD] {
                    asked += 1;
                    let got = resolved(row.base, version, flags, driver).unwrap();
                    match symbols::resolve(row.base, version, flags, driver) {
                        Ok(symbol) if ours.contains(symbol) => {
                            let address = got.expect(symbol);
                            assert_eq!(*found.entry(symbol).or_insert(address), address, "{symbol}");
                        }
                        Ok(symbol) => assert_eq!(got, Err(Status::NotFound), "{symbol} is only refused"),
                        Err(_) => assert_eq!(got, Err(Status::TooNew), "{} at {version}", row.base),
                    }
                }
            }
        }
        assert!(asked > 3 * 685);
        assert_eq!(found.len(), ours.len());
        assert_eq!(found.values().collect::<HashSet<_>>().len(), ours.len(), "each has its own");
    }

    #[test]
    fn what_was_told_first_stays() {
        let never = || unreachable!("a session knows its version");
        let told = Told(OnceLock::new());
        assert_eq!(told.version(|| Some(12080), never), 12080);
        assert_eq!(told.version(|| Some(12080), never), 12080);
        let told = Told(OnceLock::new());
        assert_eq!(told.version(|| None, || 13000), 13000);
        assert_eq!(told.version(|| Some(12080), never), 13000);
    }

    #[test]
    fn wrong_questions() {
        assert_eq!(resolved("cuInit", 13060, 0, 13050), Err(INVALID_VALUE));
        assert_eq!(resolved("cuInit", 2000, 3, 13050), Err(INVALID_VALUE));
        assert_eq!(resolved("cuGLInit", 2000, 0, 13050), Ok(Err(Status::NotFound)));
        for name in ["cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"] {
            assert!(resolved(name, 13050, 0, 13050).unwrap().is_ok(), "{name}");
        }
        assert_eq!(resolved("", 0, 0, 13050), Ok(Err(Status::NotFound)));
    }
}

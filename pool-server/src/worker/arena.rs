//! The host arena on the worker's side: the client's pinned memory, mapped at the same address and page-locked piece by
//! piece. A copy may touch nothing but such pieces: every other host address of this process is none of the client's.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use gpupool_protocol::transport::arena::ArenaMap;
use gpupool_protocol::wire::Replier;

use super::code::{Code, Fail};

/// Pieces and sizes are whole pages.
const PAGE: u64 = 4096;

/// The arena of a session.
#[derive(Debug, Default)]
pub struct HostArena {
    map: OnceLock<ArenaMap>,
    /// Lengths of the pieces that the driver has page-locked, by address.
    locked: Mutex<BTreeMap<u64, u64>>,
}

impl HostArena {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps it at `base`.
    ///
    /// # Errors
    /// CUDA_ERROR_ALREADY_MAPPED: something is there, or the arena has its place already; CUDA_ERROR_NOT_SUPPORTED: client and
    /// worker share no memory.
    pub fn place(&self, link: &Replier, base: u64) -> Result<(), Fail> {
        let file = link.arena().ok_or(Code::NOT_SUPPORTED)?;
        if self.map.get().is_some() {
            return Err(Code::ALREADY_MAPPED.into());
        }
        match file.map_at(base) {
            Ok(map) => Ok(self.map.set(map).or(Err(Code::ALREADY_MAPPED))?),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(Code::ALREADY_MAPPED.into()),
            Err(e) if e.kind() == ErrorKind::InvalidInput => Err(Code::INVALID_VALUE.into()),
            Err(_) => Err(Code::OUT_OF_MEMORY.into()),
        }
    }

    /// Notes a piece that `register` makes the driver page-lock.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE: it is not in the arena; CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: part of it is locked; what
    /// `register` says.
    pub fn add(&self, address: u64, bytes: u64, register: impl FnOnce() -> Code) -> Result<(), Fail> {
        let map = self.map.get().filter(|map| bytes > 0 && map.holds(address, bytes));
        let map = map.ok_or(Code::INVALID_VALUE)?;
        if !address.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
            return Err(Code::INVALID_VALUE.into());
        }
        let mut locked = self.lock();
        let before = locked.range(..address + bytes).next_back();
        if before.is_some_and(|(base, len)| base + len > address) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED.into());
        }
        locked.insert(address, bytes);
        drop(locked);
        let code = match map.populate(address - map.base(), bytes) {
            Ok(()) => register(),
            Err(_) => Code::OUT_OF_MEMORY,
        };
        if code != Code::SUCCESS {
            self.lock().remove(&address);
        }
        code.ok()
    }

    /// Forgets a piece; from here on no copy touches it.
    ///
    /// # Errors
    /// CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.
    pub fn take(&self, address: u64) -> Result<(), Fail> {
        let removed = self.lock().remove(&address);
        removed.map(drop).ok_or(Code::HOST_MEMORY_NOT_REGISTERED.into())
    }

    /// Checks that `bytes` from `address` on lie in one locked piece.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn check(&self, address: u64, bytes: u64) -> Result<(), Fail> {
        match self.lock().range(..=address).next_back() {
            // Subtractions, so that no sum can wrap.
            Some((base, len)) if address - base < *len && bytes <= len - (address - base) => Ok(()),
            _ => Err(Code::INVALID_VALUE.into()),
        }
    }
}

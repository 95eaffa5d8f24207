//! The part of device memory that the client divides up itself: a range of addresses for each device, with memory in pieces
//! that were created for this session and that only this session can touch.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::code::{Code, Fail};
use super::functions::{AccessDescription, Functions, Location, Properties};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
const RDMA: i32 = 110;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const MINIMUM: u32 = 0;
/// Programs have 47 bits of addresses.
const TOP: u64 = 1 << 47;
/// Of what is left on the device a session holds at most this part without using it.
const CREDIT_PART: u64 = 8;
/// Pieces that one record may ask for.
const PIECES_MAX: u64 = 4096;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ranges of a session, by the driver's number of the device.
#[derive(Debug, Default)]
pub struct Heaps {
    heaps: Mutex<HashMap<i32, Arc<Heap>>>,
}

/// One device's.
#[derive(Debug)]
pub struct Heap {
    device: i32,
    base: u64,
    bytes: u64,
    granularity: u64,
    rdma: bool,
    /// What is in it, by address. Taken only to look and to note, never while the driver works.
    pieces: Mutex<BTreeMap<u64, Piece>>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    bytes: u64,
    /// The driver is making it, or taking it away.
    busy: bool,
}

impl Heaps {
    /// The heap of a device.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE: it has none.
    pub fn find(&self, device: i32) -> Result<Arc<Heap>, Fail> {
        Ok(lock(&self.heaps).get(&device).cloned().ok_or(Code::INVALID_VALUE)?)
    }

    /// Reserves the range of a device; what memory in it comes in multiples of.
    ///
    /// # Errors
    /// CUDA_ERROR_ALREADY_MAPPED: the driver has no room at this address, or the device has its range already.
    pub fn place(&self, f: &Functions, device: i32, base: u64, bytes: u64) -> Result<u64, Fail> {
        let mut heaps = lock(&self.heaps);
        if heaps.contains_key(&device) {
            return Err(Code::ALREADY_MAPPED.into());
        }
        let mut rdma = 0;
        let rdma = f.cuDeviceGetAttribute(&mut rdma, RDMA, device) == Code::SUCCESS && rdma == 1;
        let mut heap = Heap { device, base, bytes, granularity: 0, rdma, pieces: Mutex::default() };
        let mut granularity = 0;
        f.cuMemGetAllocationGranularity(&mut granularity, &heap.properties(), MINIMUM).ok()?;
        heap.granularity = granularity as u64;
        let whole = |n: u64| n > 0 && granularity > 0 && n.is_multiple_of(granularity as u64);
        if !whole(base) || !whole(bytes) || base.checked_add(bytes).is_none_or(|end| end > TOP) {
            return Err(Code::INVALID_VALUE.into());
        }
        let mut got = 0;
        f.cuMemAddressReserve(&mut got, bytes as usize, granularity, base, 0).ok()?;
        if got != base {
            // The address is only a wish to the driver.
            f.cuMemAddressFree(got, bytes as usize).ok()?;
            return Err(Code::ALREADY_MAPPED.into());
        }
        heaps.insert(device, Arc::new(heap));
        Ok(granularity as u64)
    }
}

/// What the client asks to be added to a heap.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// Where.
    pub address: u64,
    /// Without this much it is an error.
    pub least: u64,
    /// More than this is not wanted.
    pub most: u64,
    /// In pieces of this size.
    pub piece: u64,
}

impl Heap {
    fn properties(&self) -> Properties {
        let location = Location { kind: ON_DEVICE, id: self.device };
        Properties {
            kind: PINNED,
            handles: 0,
            location,
            windows: 0,
            compression: 0,
            rdma: self.rdma.into(),
            usage: 0,
            reserved: [0; 4],
        }
    }

    /// Adds memory. Says how much, and what is left on the device.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE for what no client of ours asks; what the driver says.
    pub fn grow(&self, f: &Functions, growth: Growth) -> Result<(u64, u64), Fail> {
        let Growth { address, least, most, piece } = growth;
        let whole = |n: u64, of: u64| n > 0 && n.is_multiple_of(of);
        let inside =
            address.checked_sub(self.base).is_some_and(|at| at < self.bytes && most <= self.bytes - at);
        let shape =
            whole(piece, self.granularity) && whole(least, piece) && whole(most, piece) && least <= most;
        if !inside || !shape || !whole(address, self.granularity) || most / piece > PIECES_MAX {
            return Err(Code::INVALID_VALUE.into());
        }
        let (mut free, mut total) = (0, 0);
        f.cuMemGetInfo_v2(&mut free, &mut total).ok()?;
        let plenty = (free as u64 / CREDIT_PART) / piece * piece;
        let wanted = most.min(plenty.max(least));
        self.claim(address, wanted)?;
        let (made, code) = self.make(f, address, wanted, piece);
        let enough = made >= least;
        if !enough {
            self.unmake(f, address, made, piece);
        }
        let mut pieces = lock(&self.pieces);
        pieces.remove(&address);
        if !enough {
            return Err(code.into());
        }
        for at in (address..address + made).step_by(piece as usize) {
            pieces.insert(at, Piece { bytes: piece, busy: false });
        }
        drop(pieces);
        f.cuMemGetInfo_v2(&mut free, &mut total).ok()?;
        Ok((made, free as u64))
    }

    /// Notes that the driver works on a part where nothing is.
    fn claim(&self, address: u64, bytes: u64) -> Result<(), Fail> {
        let mut pieces = lock(&self.pieces);
        let before = pieces.range(..address + bytes).next_back();
        if before.is_some_and(|(at, piece)| at + piece.bytes > address) {
            return Err(Code::ALREADY_MAPPED.into());
        }
        pieces.insert(address, Piece { bytes, busy: true });
        Ok(())
    }

    /// Creates and maps pieces until all are there or the driver refuses: bytes made, and the refusal.
    fn make(&self, f: &Functions, address: u64, bytes: u64, piece: u64) -> (u64, Code) {
        let mut made = 0;
        let mut code = Code::SUCCESS;
        while made < bytes && code == Code::SUCCESS {
            code = self.make_one(f, address + made, piece);
            if code == Code::SUCCESS {
                made += piece;
            }
        }
        (made, code)
    }

    fn make_one(&self, f: &Functions, address: u64, bytes: u64) -> Code {
        let mut memory = 0;
        let code = f.cuMemCreate(&mut memory, bytes as usize, &self.properties(), 0);
        if code != Code::SUCCESS {
            return code;
        }
        let mut code = f.cuMemMap(address, bytes as usize, 0, memory, 0);
        // What is mapped keeps its memory without the handle.
        let released = f.cuMemRelease(memory);
        if code == Code::SUCCESS {
            let location = Location { kind: ON_DEVICE, id: self.device };
            let access = AccessDescription { location, flags: READ_WRITE };
            code = f.cuMemSetAccess(address, bytes as usize, &access, 1);
            if code != Code::SUCCESS {
                // Nothing more can be done for a piece that nobody may touch than to take it away.
                let _ = f.cuMemUnmap(address, bytes as usize);
            }
        }
        if code == Code::SUCCESS { released } else { code }
    }

    fn unmake(&self, f: &Functions, address: u64, bytes: u64, piece: u64) {
        for at in (address..address + bytes).step_by(piece as usize) {
            let code = f.cuMemUnmap(at, piece as usize);
            if code != Code::SUCCESS {
                tracing::warn!("device memory at {at:#x} cannot be given back: CUDA error {}", code.0);
            }
        }
    }

    /// Gives the memory of whole pieces back to the device.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE unless the part is made up of whole pieces; what the driver says.
    pub fn shrink(&self, f: &Functions, address: u64, bytes: u64) -> Result<(), Fail> {
        let end = address.checked_add(bytes).filter(|end| *end > address).ok_or(Code::INVALID_VALUE)?;
        let mut pieces = lock(&self.pieces);
        let found: Vec<(u64, u64)> = pieces
            .range(address..end)
            .filter(|(_, piece)| !piece.busy)
            .map(|(at, piece)| (*at, piece.bytes))
            .collect();
        let mut next = address;
        for (at, bytes) in &found {
            if *at == next {
                next += bytes;
            }
        }
        if next != end {
            return Err(Code::INVALID_VALUE.into());
        }
        for (at, _) in &found {
            if let Some(piece) = pieces.get_mut(at) {
                piece.busy = true;
            }
        }
        drop(pieces);
        let mut result = Ok(());
        for (at, bytes) in found {
            let code = f.cuMemUnmap(at, bytes as usize);
            let mut pieces = lock(&self.pieces);
            if code == Code::SUCCESS {
                pieces.remove(&at);
            } else {
                if let Some(piece) = pieces.get_mut(&at) {
                    piece.busy = false;
                }
                result = code.ok();
            }
        }
        result
    }
}

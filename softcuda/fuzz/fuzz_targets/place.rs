//! Memory for images whose length only their headers say: bytes, and zeros behind them as far as any header may point.

use std::ffi::c_void;
use std::sync::OnceLock;

/// Behind what headers may say: they are believed up to 4 GiB.
const ROOM: usize = (4 << 30) + (1 << 20);

unsafe extern "C" {
    fn mmap(addr: *mut c_void, len: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void;
}

/// `.nvFatBinSegment`, as the compiler puts it in front of a fatbin.
#[repr(C)]
pub struct Wrapper {
    pub magic: u32,
    pub version: u32,
    pub data: *const c_void,
    pub prelinked: *const *const c_void,
}

/// One of the two places, with what lies there.
#[derive(Clone, Copy)]
pub struct Place(*mut u8);

// SAFETY: a fuzz target runs on one thread.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    fn new() -> Place {
        const READ_WRITE: i32 = 3;
        const PRIVATE_ANONYMOUS_NORESERVE: i32 = 0x4022;
        // SAFETY: a new mapping, of which only what is written costs memory.
        let at = unsafe { mmap(std::ptr::null_mut(), ROOM, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0) };
        assert!(at as isize != -1, "no address space for images");
        Place(at.cast())
    }

    pub fn address(&self) -> *const c_void {
        self.0.cast()
    }

    /// Bytes at an offset.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        assert!(offset as usize + to.len() <= ROOM, "a header leads {offset} bytes away");
        // SAFETY: within the mapping, as was just checked.
        unsafe { std::ptr::copy_nonoverlapping(self.0.add(offset as usize), to.as_mut_ptr(), to.len()) };
    }
}

/// Puts bytes into both places; zeros follow them.
pub fn put(data: [&[u8]; 2]) -> [Place; 2] {
    static PLACES: OnceLock<[Place; 2]> = OnceLock::new();
    static USED: std::sync::Mutex<[usize; 2]> = std::sync::Mutex::new([0; 2]);
    let places = *PLACES.get_or_init(|| [Place::new(), Place::new()]);
    let mut used = USED.lock().unwrap();
    for ((place, data), used) in places.iter().zip(data).zip(used.iter_mut()) {
        // SAFETY: inputs are far smaller than the mapping.
        unsafe {
            place.0.add(data.len()).write_bytes(0, used.saturating_sub(data.len()));
            std::ptr::copy_nonoverlapping(data.as_ptr(), place.0, data.len());
        }
        *used = data.len();
    }
    places
}

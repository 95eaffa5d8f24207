//! Mapped regions.
//!
//! The peer may change what a region holds at any time, so nothing here ever lends a reference to its bytes: they are
//! reached through atomics, through copies, and through raw pointers that are handed to the kernel or the driver.

#![allow(unsafe_code)]

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::codec::Writer;

/// Copies up to this size go word by word through relaxed atomics; longer ones by `memcpy`. Records that decide
/// something are read in the first way; bulk bytes are data whose value means nothing to this program.
const ATOMIC_COPY_MAX: usize = 1024;

/// How a region is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only the peer writes.
    ReadOnly,
    /// This side writes.
    ReadWrite,
}

/// A mapping that lives as long as this value.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: u32,
    access: Access,
}

// SAFETY: a region is a range of addresses; all access goes through atomics and copies, see the module's text.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `len` bytes of a memfd, shared with whoever else maps it. The file must be sealed against
    /// shrinking, or the peer could make every access fault: the caller checks that.
    pub fn from_memfd(fd: impl AsFd, len: u32, access: Access) -> io::Result<Self> {
        let prot = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len as usize, prot, MapFlags::SHARED, fd.as_fd(), 0)?
        };
        Self::new(base, len, access)
    }

    /// Zeroed memory of this process; pages come into being when they are touched.
    pub fn private(len: u32) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as in `from_memfd`.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len as usize, prot, flags)? };
        Self::new(base, len, Access::ReadWrite)
    }

    fn new(base: *mut core::ffi::c_void, len: u32, access: Access) -> io::Result<Self> {
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, access })
    }

    /// The region's length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `len` bytes from `offset` lie in the region.
    #[inline(always)]
    pub fn holds(&self, offset: u32, len: usize) -> bool {
        offset as usize + len <= self.len as usize
    }

    /// The address of `offset`, from which `len` bytes are in the region.
    ///
    /// # Panics
    /// When they are not: offsets come from `layout`, and indices of the peer are checked before they become offsets.
    #[inline(always)]
    fn at(&self, offset: u32, len: usize) -> *mut u8 {
        if !self.holds(offset, len) {
            outside(offset, len);
        }
        // SAFETY: within the mapping, checked above.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// The 64-bit word at `offset`. On a read-only region use only loads of order Acquire or Relaxed.
    #[inline(always)]
    pub fn word64(&self, offset: u32) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: mapped for `self`'s life, aligned, and words are only reached through atomics. Plain atomic loads
        // are allowed on read-only memory.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// The 32-bit word at `offset`, under the same rule as [`Region::word64`].
    #[inline(always)]
    pub fn word32(&self, offset: u32) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: as in `word64`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Copies `bytes` to `offset`. The order of the stores is not defined; publish with a word afterwards.
    #[inline]
    pub fn copy_in(&self, offset: u32, bytes: &[u8]) {
        assert!(self.access == Access::ReadWrite);
        let to = self.at(offset, bytes.len());
        // SAFETY: in the region (`at`), writable (asserted), and a slice of this process cannot overlap the mapping,
        // to which nobody has a reference.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies from `offset` to `to`.
    #[inline]
    pub fn copy_out(&self, offset: u32, to: &mut [u8]) {
        let len = to.len();
        let from = self.at(offset, len);
        if offset.is_multiple_of(8) && len <= ATOMIC_COPY_MAX {
            let mut words = to.chunks_exact_mut(8);
            for (at, word) in (&mut words).enumerate() {
                // SAFETY: one of the words that lie in the region from `from` on, aligned as `offset` is.
                let source = unsafe { AtomicU64::from_ptr(from.add(8 * at).cast()) };
                word.copy_from_slice(&source.load(Ordering::Relaxed).to_le_bytes());
            }
            let rest = words.into_remainder();
            if !rest.is_empty() {
                let read = rest.len();
                // SAFETY: fewer than 8 bytes that lie in the region.
                unsafe { std::ptr::copy_nonoverlapping(from.add(len - read), rest.as_mut_ptr(), read) };
            }
            return;
        }
        // SAFETY: in the region (`at`); `to` is ours alone. If the peer writes at the same time we get some mixture of
        // bytes, which is the peer's loss.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), len) };
    }

    /// The address of `len` bytes at `offset`, for the driver and the kernel. Valid while the region lives; reading
    /// and writing through it is as unsafe as it looks.
    pub fn pointer(&self, offset: u32, len: usize) -> *mut u8 {
        self.at(offset, len)
    }

    /// Has the cache line at `offset` fetched, while this thread goes on. Changes nothing.
    #[inline(always)]
    pub fn prefetch(&self, offset: u32) {
        let at = self.at(offset, 1);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which never faults; the address is within the mapping all the same.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Has the pages of the first `len` bytes made and mapped now, so that no later access stops for that. Where the
    /// system does not know how (Linux before 5.14), they come one by one as they are touched.
    pub fn populate(&self, len: u32) {
        let how = match self.access {
            Access::ReadOnly => Advice::LinuxPopulateRead,
            Access::ReadWrite => Advice::LinuxPopulateWrite,
        };
        let at = self.at(0, len as usize);
        // SAFETY: pages of this mapping come into being, as they would when they are touched.
        let _ = unsafe { rustix::mm::madvise(at.cast(), len as usize, how) };
    }

    /// A writer over `len` bytes at `offset`, which the caller has reserved: no other thread of this process touches
    /// them while the writer lives.
    #[inline(always)]
    pub(super) fn writer(&self, offset: u32, len: usize) -> Writer<'_> {
        assert!(self.access == Access::ReadWrite);
        let at = self.at(offset, len);
        // SAFETY: mapped and writable for `self`'s life; the reservation makes this thread the only one here.
        unsafe { Writer::new(at, len) }
    }

    /// Receives at most `len` bytes from `socket` straight to `offset`. `Ok(0)`: the peer has closed.
    pub fn receive(&self, socket: BorrowedFd<'_>, offset: u32, len: usize, wait: bool) -> io::Result<usize> {
        assert!(self.access == Access::ReadWrite);
        receive(socket, self.at(offset, len), len, wait)
    }
}

/// A word of a region whose place has been checked: an `AtomicU64` or an `AtomicU32`.
pub struct Kept<W> {
    word: NonNull<W>,
    _region: Arc<Region>,
}

// SAFETY: atomics of a mapping that lives as long as this value.
unsafe impl<W: Sync> Send for Kept<W> {}
// SAFETY: as above.
unsafe impl<W: Sync> Sync for Kept<W> {}

impl Kept<AtomicU64> {
    /// The word at `offset`, as [`Region::word64`].
    pub fn word64(region: &Arc<Region>, offset: u32) -> Self {
        Self { word: NonNull::from(region.word64(offset)), _region: region.clone() }
    }
}

impl Kept<AtomicU32> {
    /// The word at `offset`, as [`Region::word32`].
    pub fn word32(region: &Arc<Region>, offset: u32) -> Self {
        Self { word: NonNull::from(region.word32(offset)), _region: region.clone() }
    }
}

impl<W> Deref for Kept<W> {
    type Target = W;
    #[inline(always)]
    fn deref(&self) -> &W {
        // SAFETY: in the mapping, which lives as long as this value; only reached as an atomic.
        unsafe { self.word.as_ref() }
    }
}

/// Apart, and by value, so that a check costs a comparison and nothing is put into memory for the message.
#[cold]
#[inline(never)]
fn outside(offset: u32, len: usize) -> ! {
    panic!("{len} bytes at {offset} are outside the region");
}

/// As `fence(SeqCst)`. On x86 any locked instruction is a full barrier, and one on the stack takes half as long as the
/// `mfence` that compilers choose.
#[inline(always)]
pub fn full_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes nothing in this thread's own stack. Without `nomem` the compiler moves no access across it.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp - 8], 0", options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Bytes of the program that are being filled, outside of all regions.
#[derive(Debug)]
pub struct Outside {
    address: usize,
    len: usize,
}

impl Outside {
    /// `len` bytes from `address` on.
    ///
    /// # Safety
    /// They can be written while this value lives, and nobody else uses them.
    pub unsafe fn new(address: usize, len: usize) -> Self {
        Self { address, len }
    }

    /// The first byte's address.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Copies `bytes` there, as far as there is room.
    pub fn copy_in(&self, bytes: &[u8]) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.address);
        // SAFETY: `new`'s caller has promised the bytes, and `bytes` is ours.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len().min(self.len)) };
    }

    /// As [`Region::receive`].
    pub fn receive(&self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<usize> {
        receive(socket, std::ptr::with_exposed_provenance_mut(self.address), self.len, wait)
    }
}

/// Receives at most `len` bytes to `to`, which must be writable.
fn receive(socket: BorrowedFd<'_>, to: *mut u8, len: usize, wait: bool) -> io::Result<usize> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: the kernel writes into `len` bytes that both callers know to be writable and to which nobody has a reference.
    let got = unsafe { libc::recv(socket.as_raw_fd(), to.cast(), len, flags) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no borrow of it outlives `self`. Nothing can be done about a failure.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len as usize) };
    }
}

/// A run of bytes to send.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    /// Bytes of this process.
    Bytes(&'a [u8]),
    /// Bytes of a region, which may change while they are read.
    Region(&'a Region, u32, usize),
}

impl Part<'_> {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Region(_, _, len) => *len,
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sends up to three parts with one system call, without waiting, from byte `skip` of their sequence on. Returns how
/// many bytes the kernel took.
pub fn send_parts(socket: BorrowedFd<'_>, parts: &[Part<'_>], mut skip: usize) -> io::Result<usize> {
    const PARTS_MAX: usize = 3;
    assert!(parts.len() <= PARTS_MAX);
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
    let mut count = 0;
    for part in parts {
        let skipped = skip.min(part.len());
        skip -= skipped;
        let left = part.len() - skipped;
        if left == 0 {
            continue;
        }
        let base = match part {
            Part::Bytes(bytes) => bytes[skipped..].as_ptr().cast_mut(),
            Part::Region(region, offset, _) => region.pointer(offset + skipped as u32, left),
        };
        vectors[count] = libc::iovec { iov_base: base.cast(), iov_len: left };
        count += 1;
    }
    // SAFETY: an all-zero `msghdr` is valid; it is filled with vectors that are alive during the call, from which the
    // kernel only reads.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = count as _;
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_words_meet_at_the_same_bytes() {
        let region = Region::private(64 * 1024).unwrap();
        region.copy_in(8, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(region.word64(8).load(Ordering::Acquire), u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(region.word32(12).load(Ordering::Acquire), u32::from_le_bytes([5, 6, 7, 8]));
        for (offset, len) in [(8, 11), (9, 9), (8, 3), (8, 8), (16, 3)] {
            let mut out = vec![0xEE; len];
            region.copy_out(offset, &mut out);
            let expected: Vec<u8> =
                (offset as usize - 7..offset as usize - 7 + len).map(|v| v as u8).collect();
            assert_eq!(out, expected, "{len} bytes at {offset}");
        }
        let long = vec![0x5A; 5000];
        region.copy_in(1000, &long);
        let mut out = vec![0; 5000];
        region.copy_out(1000, &mut out);
        assert_eq!(out, long);
    }

    #[test]
    #[should_panic = "outside the region"]
    fn access_beyond_the_end_is_a_defect() {
        Region::private(4096).unwrap().copy_in(4090, &[0; 7]);
    }
}

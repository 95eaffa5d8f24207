//! What the system has mapped where in this process: whether the driver and kernels can touch memory of the program without
//! bringing it down, and whether it is still what it was.

use softcuda_engine::Access;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// `struct procmap_query` of `linux/fs.h`.
#[derive(Default)]
#[repr(C)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    kind: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_size: u32,
    name: u64,
    build: u64,
}

/// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`, since Linux 6.11.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
/// `PROCMAP_QUERY_VMA_READABLE`, `…_WRITABLE`.
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;

/// One mapping.
#[derive(Debug, Clone, Copy)]
struct Mapping {
    end: u64,
    /// None: it cannot be read.
    access: Option<Access>,
    /// The file: device and inode; zeros for anonymous memory.
    file: ([u32; 2], u64),
}

/// The list of mappings, if this system answers questions about single ones.
fn list() -> Option<&'static File> {
    static LIST: OnceLock<Option<File>> = OnceLock::new();
    LIST.get_or_init(|| {
        let file = File::open("/proc/self/maps").ok()?;
        // One that there is: this function's own variable.
        matches!(ask(&file, (&raw const file).addr() as u64), Ok(Some(_))).then_some(file)
    })
    .as_ref()
}

/// The mapping at an address, if there is one.
///
/// # Errors
/// The list does not answer: the program has closed its descriptor, and may have a file of its own under the number.
fn ask(list: &File, address: u64) -> std::io::Result<Option<Mapping>> {
    let mut query = Query { size: size_of::<Query>() as u64, address, ..Query::default() };
    // SAFETY: the call fills the structure, whose size it is told, and writes nothing else, as no buffers are given.
    if unsafe { libc::ioctl(list.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } != 0 {
        let error = std::io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOENT) { Ok(None) } else { Err(error) };
    }
    let access = match query.kind & (READABLE | WRITABLE) {
        0 => None,
        READABLE => Some(Access::Read),
        // What can be written can be read on these processors.
        _ => Some(Access::ReadWrite),
    };
    Ok(Some(Mapping { end: query.end, access, file: (query.device, query.inode) }))
}

/// A line of the list: `start-end rwxp offset major:minor inode path`.
fn parse(line: &str) -> Option<(u64, Mapping)> {
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let access = match fields.next()?.as_bytes() {
        [_, b'w', ..] => Some(Access::ReadWrite),
        [b'r', ..] => Some(Access::Read),
        _ => None,
    };
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let device = [hexadecimal(major)? as u32, hexadecimal(minor)? as u32];
    let file = (device, fields.next()?.parse().ok()?);
    Some((hexadecimal(start)?, Mapping { end: hexadecimal(end)?, access, file }))
}

/// The mappings that make up a range, each with the address from which it does; none if a part is not there.
fn of(address: u64, bytes: u64) -> Option<Vec<(u64, Mapping)>> {
    let end = address.checked_add(bytes.max(1))?;
    if let Some(asked) = list().and_then(|list| of_list(list, address, end).ok()) {
        return asked;
    }
    let (mut at, mut all) = (address, Vec::new());
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    for (start, mapping) in text.lines().filter_map(parse).filter(|(_, mapping)| mapping.end > address) {
        if start > at {
            return None;
        }
        all.push((at, mapping));
        at = mapping.end;
        if at >= end {
            return Some(all);
        }
    }
    None
}

/// [`of`], by single questions.
fn of_list(list: &File, address: u64, end: u64) -> std::io::Result<Option<Vec<(u64, Mapping)>>> {
    let (mut at, mut all) = (address, Vec::new());
    while at < end {
        let Some(mapping) = ask(list, at)? else { return Ok(None) };
        all.push((at, mapping));
        at = mapping.end;
    }
    Ok(Some(all))
}

/// What the program may do with all of a range; none if a part is not there or cannot be read.
pub fn access(address: u64, bytes: u64) -> Option<Access> {
    let mut access = Access::ReadWrite;
    for (_, mapping) in of(address, bytes)? {
        if mapping.access? == Access::Read {
            access = Access::Read;
        }
    }
    Some(access)
}

/// Whether the driver may copy from a range, or (`write`) to it, as far as that is told quickly: on a system that does not
/// answer for single mappings, and when the program has closed what answers, any range will do.
pub fn allow(address: u64, bytes: u64, write: bool) -> bool {
    let Some(list) = list() else { return true };
    let Some(end) = address.checked_add(bytes) else { return false };
    let mut at = address;
    while at < end {
        match ask(list, at) {
            Ok(Some(Mapping { end, access: Some(access), .. })) if !write || access == Access::ReadWrite => {
                at = end
            }
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
    true
}

/// Memory of the program as it was at some time, to be known again.
pub struct Kept {
    address: u64,
    bytes: u64,
    access: Access,
    /// The file that each part is of, with the part's first address.
    files: Vec<(u64, ([u32; 2], u64))>,
    /// Whether it was locked to be known by that: anonymous memory has no name, and what is mapped anew is not locked.
    locked: bool,
    /// Whether some of it was locked already: by the program, or for a neighbour on the same page. It stays so.
    stays_locked: bool,
}

const PAGE: u64 = 4096;

/// The pages that a range touches.
fn pages(address: u64, bytes: u64) -> (u64, u64) {
    let first = address & !(PAGE - 1);
    (first, (address + bytes).next_multiple_of(PAGE) - first)
}

/// Whether the mapping of some pages is locked: then alone the call refuses to drop cached copies (msync(2)). Else it does nothing.
fn is_locked((address, bytes): (u64, u64)) -> bool {
    let flags = libc::MS_ASYNC | libc::MS_INVALIDATE;
    // SAFETY: changes no memory; bad addresses are an error.
    let refused = unsafe { libc::msync(address as *mut libc::c_void, bytes as usize, flags) != 0 };
    refused && std::io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY)
}

/// Whether something is mapped at all of some pages.
fn is_mapped((address, bytes): (u64, u64)) -> bool {
    // SAFETY: with this flag the call does nothing but look whether there are mappings.
    unsafe { libc::msync(address as *mut libc::c_void, bytes as usize, libc::MS_ASYNC) == 0 }
}

impl Kept {
    /// Memory that can be accessed so. Private memory is locked when it comes, as far as the system lets this process
    /// (`ulimit -l`); where it does not, memory that is mapped anew at the same place is not told from it.
    pub fn new(address: u64, bytes: u64, access: Access) -> Option<Kept> {
        let files: Vec<_> = of(address, bytes)?.into_iter().map(|(at, mapping)| (at, mapping.file)).collect();
        let (first, length) = pages(address, bytes);
        let nameless = files.iter().all(|(_, file)| *file == Default::default());
        let stays_locked = is_locked((first, length));
        let locked = nameless && {
            // SAFETY: pages that are there stay as they are; those that come are not swapped.
            unsafe { libc::mlock2(first as *const libc::c_void, length as usize, libc::MLOCK_ONFAULT) == 0 }
        };
        Some(Kept { address, bytes, access, files, locked, stays_locked })
    }

    /// Whether all of it is still there, is the same, and can be accessed as before.
    pub fn is_there(&self) -> bool {
        if list().is_none() {
            // Reading the list takes longer than a kernel does: it is then only looked whether something is there.
            let all = pages(self.address, self.bytes);
            return if self.locked { is_locked(all) } else { is_mapped(all) };
        }
        let Some(now) = of(self.address, self.bytes) else { return false };
        let end = self.address + self.bytes;
        now.into_iter().all(|(at, mapping)| {
            let accessible = match self.access {
                Access::Read => mapping.access.is_some(),
                Access::ReadWrite => mapping.access == Some(Access::ReadWrite),
            };
            let before = self.files.iter().rev().find(|(from, _)| *from <= at);
            let part = pages(at, mapping.end.min(end) - at);
            let same = before.is_some_and(|(_, file)| *file == mapping.file);
            accessible && same && (!self.locked || is_locked(part))
        })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.locked && !self.stays_locked {
            // Only whole pages: the first and the last may be a neighbour's as well, which is kept by the same means.
            let first = self.address.next_multiple_of(PAGE);
            let end = (self.address + self.bytes) & !(PAGE - 1);
            if first < end {
                // SAFETY: pages stay as they are; where nothing is mapped any more the call does nothing.
                unsafe { libc::munlock(first as *const libc::c_void, (end - first) as usize) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(at: u64, bytes: usize, protection: i32) -> u64 {
        let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        // SAFETY: a place of the system's choice, or one that an earlier call gave.
        let address = unsafe { libc::mmap(at as *mut _, bytes, protection, flags, -1, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        address.addr() as u64
    }

    const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    fn what_may_be_done_is_what_the_system_says() {
        let base = map(0, 5 << 12, BOTH);
        map(base + (2 << 12), 1 << 12, libc::PROT_READ);
        map(base + (3 << 12), 1 << 12, libc::PROT_NONE);
        // SAFETY: the last of the pages above.
        unsafe { libc::munmap((base + (4 << 12)) as *mut _, 1 << 12) };
        let of_pages = |first: u64, count: u64| access(base + (first << 12), count << 12);
        assert_eq!(of_pages(0, 2), Some(Access::ReadWrite));
        assert_eq!(of_pages(0, 3), Some(Access::Read));
        assert_eq!((of_pages(0, 4), of_pages(3, 1), of_pages(4, 1)), (None, None, None));
        assert_eq!(access(base + 4090, 7), Some(Access::ReadWrite), "across a page");
        assert!(allow(base, 3 << 12, false) && allow(base + 1, 10, true));
        if list().is_some() {
            assert!(
                !allow(base, 3 << 12, true)
                    && !allow(base, 4 << 12, false)
                    && !allow(base + (4 << 12), 1, false)
            );
        }
    }

    #[test]
    fn both_ways_of_asking_say_the_same() {
        let Some(list) = list() else { return };
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = map(0, 1 << 12, BOTH);
        let address = parse(text.lines().next().unwrap()).unwrap().0;
        for (start, told) in text.lines().filter_map(parse).filter(|(start, _)| *start == address) {
            let asked = ask(list, start).unwrap().unwrap();
            assert_eq!((asked.end, asked.access, asked.file), (told.end, told.access, told.file));
        }
        assert_eq!(ask(list, own).unwrap().unwrap().file, Default::default());
    }

    #[test]
    fn memory_that_is_mapped_anew_is_not_what_was_kept() {
        let base = map(0, 4 << 12, BOTH);
        let keep = || Kept::new(base + 100, (3 << 12) + 50, Access::ReadWrite).unwrap();
        for _ in 0..2 {
            let kept = keep();
            assert!(kept.is_there());
            map(base + (1 << 12), 1 << 12, BOTH);
            assert_eq!(kept.is_there(), !kept.locked, "a page in the middle");
        }
        let kept = keep();
        // SAFETY: the pages above.
        let protect =
            |protection| unsafe { libc::mprotect((base + (2 << 12)) as *mut _, 1 << 12, protection) };
        assert_eq!(protect(libc::PROT_READ), 0);
        assert!(!kept.is_there());
        assert_eq!(protect(BOTH), 0);
        assert!(kept.is_there());
        drop(kept);
        let whole = (map(0, 2 << 12, BOTH), 2 << 12);
        let kept = Kept::new(whole.0, whole.1, Access::ReadWrite).unwrap();
        assert_eq!(is_locked(whole), kept.locked);
        drop(kept);
        assert!(!is_locked(whole));
    }
}

//! Compiled code in files, shared by the processes of a user.
//!
//! A file's name is the key: a hash of all that the code depends on. Files are written under another name and renamed,
//! so that no reader ever sees half of one, whoever crashes when; what is read is checked against a hash of it and of its
//! key. Since it is code that will be run, the directory and the file must belong to this user, and nobody else
//! may be able to write to them. Whatever goes wrong here only costs a compilation.
#![forbid(unsafe_code)]

use super::{Generator, Object, Unit};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, renameat, statat, unlinkat,
};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What every file begins with: the number changes with the layout of the file.
const MAGIC: &[u8; 8] = b"SCCODE\0\x01";
/// Magic and checksum.
const HEADER: usize = 8 + 32;
/// No kernel has so much code; a longer file is not read.
const MAX_FILE: u64 = 256 << 20;
/// How often the directory is swept: at the first of so many stores.
const SWEEP: u32 = 32;
/// A file that is being written is not older than this.
const STALE: i64 = 3600;
/// Files that are being written begin so.
const UNFINISHED: &str = "new-";

/// A directory of compiled code.
#[derive(Debug)]
pub struct CodeCache {
    directory: PathBuf,
    limit: u64,
    stores: AtomicU32,
    hits: AtomicU64,
}

impl CodeCache {
    /// A cache in `directory`, which is made (for this user alone) when something is first stored. When its files have more than
    /// `limit` bytes together, those that were not used for longest go.
    pub fn new(directory: PathBuf, limit: u64) -> CodeCache {
        CodeCache { directory, limit, stores: AtomicU32::new(0), hits: AtomicU64::new(0) }
    }

    /// How often code came from a file.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The code of a unit: from its file, or made now and kept.
    pub(crate) fn object(&self, generator: &dyn Generator, unit: &Unit) -> Result<Object, String> {
        if let Some(object) = self.kept(generator, unit) {
            return Ok(object);
        }
        let object = generator.compile(unit)?;
        // A full disk or a directory that is not ours: then the next process compiles again.
        let _ = self.store(&key(generator, unit), &object);
        Ok(object)
    }

    /// The code of a unit, if it has a file.
    pub(crate) fn kept(&self, generator: &dyn Generator, unit: &Unit) -> Option<Object> {
        let object = self.load(&key(generator, unit)).ok()?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(object)
    }

    /// The directory, if it is safe to take code from it. Opened anew each time: a program may close all descriptors.
    fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let directory = open(&self.directory, flags, Mode::empty())?;
        if !private(&fstat(&directory)?) {
            let what = format!("{} is not this user's alone (mode 0700)", self.directory.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(directory)
    }

    fn load(&self, key: &blake3::Hash) -> io::Result<Object> {
        let name = key.to_hex();
        let directory = self.open()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = File::from(openat(&directory, name.as_str(), flags, Mode::empty())?);
        let stat = fstat(&file)?;
        if !private(&stat) || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut bytes = Vec::new();
        (&mut file).take(MAX_FILE).read_to_end(&mut bytes)?;
        let object = decode(key, &bytes).ok_or(io::ErrorKind::InvalidData)?;
        // The time of the last use, for the sweep.
        let _ = file.set_modified(std::time::SystemTime::now());
        Ok(object)
    }

    fn store(&self, key: &blake3::Hash, object: &Object) -> io::Result<()> {
        make_private(&self.directory)?;
        let directory = self.open()?;
        if self.stores.fetch_add(1, Ordering::Relaxed).is_multiple_of(SWEEP) {
            self.sweep(&directory)?;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Processes in other containers may have our number.
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{UNFINISHED}{}-{number}-{now}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR)?);
        let done = file
            .write_all(&encode(key, object))
            .and_then(|()| Ok(renameat(&directory, &name, &directory, key.to_hex().as_str())?));
        if done.is_err() {
            let _ = unlinkat(&directory, &name, AtFlags::empty());
        }
        done
    }

    /// Removes what crashed writers left, and the files that were not used for longest while there are too many bytes.
    fn sweep(&self, directory: &OwnedFd) -> io::Result<()> {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs() as i64);
        let mut files = Vec::new();
        for entry in Dir::read_from(directory)?.flatten() {
            let name = entry.file_name();
            let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                continue;
            }
            let unfinished = name.to_bytes().starts_with(UNFINISHED.as_bytes());
            if !unfinished {
                files.push((stat.st_mtime, stat.st_size as u64, name.to_owned()));
            } else if now - stat.st_mtime > STALE {
                let _ = unlinkat(directory, name, AtFlags::empty());
            }
        }
        let mut total: u64 = files.iter().map(|f| f.1).sum();
        if total <= self.limit {
            return Ok(());
        }
        files.sort();
        // Some room, so that it is not full again at once.
        for (_, size, name) in files {
            if total <= self.limit / 4 * 3 {
                break;
            }
            if unlinkat(directory, &name, AtFlags::empty()).is_ok() {
                total -= size;
            }
        }
        Ok(())
    }
}

/// Whether something is this user's, and nobody else can write to it (or, a directory, look into it).
fn private(stat: &Stat) -> bool {
    let others = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => 0o077,
        _ => 0o022,
    };
    stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & others == 0
}

/// Makes a directory and those above it, for this user alone. One that is there already stays as it is.
fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn key(generator: &dyn Generator, unit: &Unit) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in [env!("SOFTCUDA_ENGINE_BUILD").as_bytes(), generator.identity().as_bytes(), &unit.identity()]
    {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

fn checksum(key: &blake3::Hash, body: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(key.as_bytes());
    hasher.update(body);
    hasher.finalize()
}

fn encode(key: &blake3::Hash, object: &Object) -> Vec<u8> {
    let body = bincode::encode_to_vec(object, bincode::config::standard()).unwrap_or_default();
    [MAGIC.as_slice(), checksum(key, &body).as_bytes(), &body].concat()
}

fn decode(key: &blake3::Hash, bytes: &[u8]) -> Option<Object> {
    let (header, body) = bytes.split_at_checked(HEADER)?;
    if &header[..8] != MAGIC || checksum(key, body).as_bytes().as_slice() != &header[8..] {
        return None;
    }
    let config = bincode::config::standard().with_limit::<{ MAX_FILE as usize }>();
    let (object, used) = bincode::decode_from_slice(body, config).ok()?;
    (used == body.len()).then_some(object)
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;

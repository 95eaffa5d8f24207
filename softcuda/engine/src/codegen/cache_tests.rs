use super::*;
use crate::codegen::{Fixup, Mode as RunMode, Variant};
use std::os::unix::fs::PermissionsExt;

fn object(number: u32, size: usize) -> Object {
    Object {
        variant: Variant { mode: RunMode::ThreadLoop, width: 1, rows: false },
        bytes: (0..size).map(|i| (i as u32 * 7 + number) as u8).collect(),
        entries: vec![0, number],
        by_number: vec![1],
        frame: 64,
        group_frame: 0,
        fixups: vec![Fixup { at: 2, var: 0, addend: -8 }],
        places: Vec::new(),
        segments: None,
        covers: Vec::new(),
    }
}

fn name(number: u32) -> blake3::Hash {
    blake3::hash(&number.to_le_bytes())
}

struct Place {
    cache: CodeCache,
    path: PathBuf,
    _root: tempfile::TempDir,
}

fn place(limit: u64) -> Place {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("deep/cache");
    Place { cache: CodeCache::new(path.clone(), limit), path, _root: root }
}

fn file(p: &Place, key: &blake3::Hash) -> PathBuf {
    p.path.join(key.to_hex().as_str())
}

#[test]
fn what_was_stored_comes_back_in_a_directory_of_our_own() {
    let p = place(1 << 20);
    assert!(p.cache.load(&name(1)).is_err());
    p.cache.store(&name(1), &object(1, 1000)).unwrap();
    assert_eq!(p.cache.load(&name(1)).unwrap(), object(1, 1000));
    assert!(p.cache.load(&name(2)).is_err());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&p.path), mode(&file(&p, &name(1)))), (0o700, 0o600));
    assert_eq!(std::fs::read_dir(&p.path).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_damaged_file_is_not_used_and_is_replaced() {
    let p = place(1 << 20);
    p.cache.store(&name(1), &object(1, 1000)).unwrap();
    let good = std::fs::read(file(&p, &name(1))).unwrap();
    // A crash of the machine may leave any beginning of a file; a bad disk any byte.
    for len in [0, 1, HEADER - 1, HEADER, good.len() / 2, good.len() - 1] {
        std::fs::write(file(&p, &name(1)), &good[..len]).unwrap();
        assert!(p.cache.load(&name(1)).is_err(), "{len} bytes");
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(decode(&name(1), &bad).is_none(), "byte {at}");
    }
    assert!(decode(&name(1), &[good.as_slice(), &[0]].concat()).is_none());
    p.cache.store(&name(1), &object(1, 1000)).unwrap();
    assert_eq!(p.cache.load(&name(1)).unwrap(), object(1, 1000));
}

#[test]
fn a_file_under_the_name_of_another_is_not_used() {
    let p = place(1 << 20);
    p.cache.store(&name(1), &object(1, 100)).unwrap();
    std::fs::copy(file(&p, &name(1)), file(&p, &name(2))).unwrap();
    assert!(p.cache.load(&name(2)).is_err());
}

#[test]
fn what_others_can_write_is_neither_read_nor_written() {
    let p = place(1 << 20);
    p.cache.store(&name(1), &object(1, 100)).unwrap();
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    for mode in [0o770, 0o702, 0o755] {
        set(&p.path, mode);
        assert!(p.cache.load(&name(1)).is_err(), "directory {mode:o}");
        assert!(p.cache.store(&name(2), &object(2, 100)).is_err(), "directory {mode:o}");
    }
    set(&p.path, 0o700);
    set(&file(&p, &name(1)), 0o666);
    assert!(p.cache.load(&name(1)).is_err());
    set(&file(&p, &name(1)), 0o600);
    assert!(p.cache.load(&name(1)).is_ok());
}

#[test]
fn another_users_directory_or_file_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let p = place(1 << 20);
    p.cache.store(&name(1), &object(1, 100)).unwrap();
    std::os::unix::fs::chown(file(&p, &name(1)), Some(12345), None).unwrap();
    assert!(p.cache.load(&name(1)).is_err());
    std::os::unix::fs::chown(file(&p, &name(1)), Some(0), None).unwrap();
    assert!(p.cache.load(&name(1)).is_ok());
    std::os::unix::fs::chown(&p.path, Some(12345), None).unwrap();
    assert!(p.cache.load(&name(1)).is_err());
    assert!(p.cache.store(&name(2), &object(2, 100)).is_err());
}

#[test]
fn links_are_not_followed() {
    let p = place(1 << 20);
    p.cache.store(&name(1), &object(1, 100)).unwrap();
    let real = p.path.with_file_name("elsewhere");
    std::fs::rename(file(&p, &name(1)), &real).unwrap();
    std::os::unix::fs::symlink(&real, file(&p, &name(1))).unwrap();
    assert!(p.cache.load(&name(1)).is_err(), "a file that is a link");
    let link = p.path.with_file_name("link");
    std::os::unix::fs::symlink(&p.path, &link).unwrap();
    assert!(
        CodeCache::new(link, 1 << 20).store(&name(2), &object(2, 100)).is_err(),
        "a directory that is one"
    );
}

#[test]
fn the_oldest_go_when_there_is_too_much_and_leftovers_go_when_they_are_old() {
    let p = place(10_000);
    let age = |path: &Path, seconds: u64| {
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    for n in 0..20 {
        p.cache.store(&name(n), &object(n, 1000)).unwrap();
        age(&file(&p, &name(n)), 10_000 - u64::from(n) * 100);
    }
    let (old, young) = (p.path.join("new-1-1"), p.path.join("new-1-2"));
    std::fs::write(&old, "half").unwrap();
    std::fs::write(&young, "half").unwrap();
    age(&old, 4000);
    // A use makes the very oldest young.
    assert!(p.cache.load(&name(0)).is_ok());
    p.cache.sweep(&p.cache.open().unwrap()).unwrap();
    let left: Vec<u32> = (0..20).filter(|n| file(&p, &name(*n)).exists()).collect();
    assert_eq!(left, [0, 14, 15, 16, 17, 18, 19], "7 files of some 1060 bytes fit in three quarters");
    assert!(!old.exists() && young.exists());
}

#[test]
fn many_writers_and_readers_see_whole_files_only() {
    let p = place(1 << 30);
    std::thread::scope(|s| {
        for t in 0..4u32 {
            let cache = &p.cache;
            s.spawn(move || {
                for i in 0..200 {
                    let n = (i + t) % 5;
                    match cache.load(&name(n)) {
                        Ok(found) => assert_eq!(found, object(n, 5000)),
                        // It may not be there yet, but never be wrong.
                        Err(e) => assert_eq!(e.kind(), io::ErrorKind::NotFound),
                    }
                    cache.store(&name(n), &object(n, 5000)).unwrap();
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(&p.path).unwrap().count(), 5);
}

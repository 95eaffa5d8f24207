use super::*;

#[test]
fn small_and_large_allocations_are_apart_and_come_back() {
    let m = Memory::new(64 << 20).unwrap();
    let sizes = [1, 255, 256, 257, 4096, 300 << 10, 3 << 20];
    let addrs: Vec<u64> = sizes.iter().map(|&s| m.alloc(s, 1).unwrap()).collect();
    for (i, (&a, &s)) in addrs.iter().zip(&sizes).enumerate() {
        assert_eq!(a % 256, 0);
        assert_eq!(m.find(a + s - 1), Some((a, s)));
        assert!(m.check(a, s) && !m.check(a, s + 1));
        assert!(addrs[..i].iter().zip(&sizes).all(|(&b, &t)| b + t <= a || a + s <= b));
    }
    assert_eq!(m.used(), sizes.iter().sum::<u64>());
    assert!(!m.free(addrs[4] + 1));
    assert!(addrs.iter().all(|&a| m.free(a)));
    assert!(addrs.iter().all(|&a| !m.free(a) && m.find(a).is_none()));
    assert_eq!(m.used(), 0);
}

#[test]
fn the_limit_is_exact() {
    let m = Memory::new(1 << 20).unwrap();
    let a = m.alloc(1 << 20, 256).unwrap();
    assert_eq!(m.alloc(1, 1), Err(OutOfMemory { wanted: 1, free: 0, total: 1 << 20 }));
    assert!(m.free(a));
    assert!(m.alloc(u64::MAX, 1).is_err());
    assert!(m.alloc((1 << 20) + 1, 1).is_err());
    assert!(m.alloc(1 << 20, 1).is_ok());
}

#[test]
fn copies_are_checked_against_allocations() {
    let m = Memory::new(1 << 20).unwrap();
    let a = m.alloc(16, 1).unwrap();
    assert!(m.write(a, &[1; 16]) && !m.write(a + 1, &[1; 16]) && !m.write(0x1234, &[1]));
    assert!(m.fill(a + 4, &[7, 8], 3) && !m.fill(a, &[7, 8], 9) && !m.fill(a, &[7, 8], u64::MAX));
    let mut b = [0; 16];
    assert!(m.read(a, &mut b));
    assert_eq!(b, [1, 1, 1, 1, 7, 8, 7, 8, 7, 8, 1, 1, 1, 1, 1, 1]);
    assert!(m.copy(a, a + 4, 12) && !m.copy(a + 4, a, 13));
    assert!(m.permits(a, 16, true) && !m.permits(m.base(), 1, true) && !m.permits(u64::MAX, 8, true));
}

#[test]
fn host_memory_is_reachable_while_registered() {
    let m = Memory::new(1 << 20).unwrap();
    let host = [0u8; 64];
    let p = host.as_ptr() as u64;
    assert!(!m.permits(p, 64, true));
    assert!(m.register_host(p, 64) && !m.register_host(p + 8, 8));
    assert!(m.permits(p, 64, true) && !m.permits(p, 65, true) && m.check_host(p + 63, 1));
    assert!(m.unregister_host(p) && !m.unregister_host(p) && !m.permits(p, 1, true));
}

#[test]
fn a_freed_granule_is_not_reachable_and_reads_zero_again() {
    let m = Memory::new(64 << 20).unwrap();
    let a = m.alloc(1 << 20, 1).unwrap();
    assert!(m.write(a, &[9]));
    assert!(m.free(a) && !m.permits(a, 1, true));
    let b = m.alloc(1 << 20, 1).unwrap();
    let mut byte = [1];
    assert!(b == a && m.read(b, &mut byte) && byte == [0]);
}

#[test]
fn memory_that_is_open_for_two_reasons_stays_open_until_both_end() {
    let (owner, other) = (Memory::new(64 << 20).unwrap(), Memory::new(64 << 20).unwrap());
    let a = owner.alloc(1 << 20, 1).unwrap();
    let view = other.view().unwrap();
    let open = || view.permits(a, 1 << 20);
    owner.open_to(&view);
    assert!(open() && !other.permits(a, 1, false), "in the view alone");
    assert!(other.open_window(a, 1 << 20, Access::ReadWrite) && other.close_window(a));
    assert!(open(), "the window's end takes nothing of the peer's access");
    assert!(other.open_window(a, 1 << 20, Access::ReadWrite));
    owner.close_to(&view);
    assert!(open(), "nor the other way round");
    assert!(other.close_window(a) && !open());
}

#[test]
fn a_view_has_what_its_device_has_and_gets() {
    let m = Memory::new(64 << 20).unwrap();
    let before = m.alloc(1 << 20, 1).unwrap();
    let window = 0x7100_0000_0000;
    assert!(m.open_window(window, 1 << 16, Access::ReadWrite));
    let view = m.view().unwrap();
    let after = m.alloc(1 << 20, 1).unwrap();
    assert!(m.open_window(window + (1 << 20), 1 << 16, Access::ReadWrite));
    let places = [before, after, window, window + (1 << 20)];
    assert!(places.iter().all(|place| view.permits(*place, 1 << 16)));
    assert!(m.free(before) && m.free(after) && m.close_window(window) && m.close_window(window + (1 << 20)));
    assert!(!places.iter().any(|place| view.permits(*place, 1)));
}

#[test]
fn nothing_that_is_written_while_memory_becomes_shared_is_lost() {
    let m = Memory::new(256 << 20).unwrap();
    let places: Vec<u64> = (0..40).map(|_| m.alloc(2 << 20, 1).unwrap()).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            let mut count = 0u64;
            while !done.load(Ordering::Acquire) {
                count += 1;
                for place in &places {
                    assert!(m.write(*place, &count.to_le_bytes()));
                    let mut bytes = [0; 8];
                    assert!(m.read(*place, &mut bytes));
                    assert_eq!(u64::from_le_bytes(bytes), count);
                }
            }
            count
        });
        for place in &places {
            assert_eq!(m.share(*place, "test").unwrap().size, 2 << 20);
        }
        done.store(true, Ordering::Release);
        assert!(writer.join().unwrap() > 0);
    });
}

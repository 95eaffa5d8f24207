//! Kernels of `ptx/features.cu`, as nvcc 13.5 compiles them: what ordinary CUDA C++ needs beyond the six cases.

mod common;

use common::{Arg, Device, pack};
use softcuda_engine::{FaultKind, Kernel, Launch, Loaded};
use std::sync::Arc;

fn load(d: &Device) -> Arc<Loaded> {
    d.load(include_str!("ptx/features.ptx"))
}

fn kernel(m: &Loaded, name: &str) -> Arc<Kernel> {
    m.kernels().iter().find(|k| k.name.contains(&format!("{}{name}", name.len()))).unwrap().clone()
}

fn one(d: &Device, name: &str, threads: u32, args: &[Arg]) {
    d.run(&kernel(&load(d), name), [1; 3], [threads, 1, 1], args).unwrap();
}

#[test]
fn grid_synchronisation() {
    let d = Device::new();
    let m = load(&d);
    let k = kernel(&m, "gridsync");
    let (blocks, threads, rounds) = (d.engine.max_resident_blocks(&k, 256, 0), 256, 9);
    let total = (blocks * threads) as usize;
    let a = d.put(&vec![0u32; 100 + total]);
    let launch = Launch {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared: 0,
        params: pack(&k, &[Arg::U64(a), Arg::U32(rounds)]),
        cooperative: true,
        ..Launch::default()
    };
    for again in 1..=3 {
        d.engine.run(&k, &launch).unwrap();
        let got: Vec<u32> = d.get(a, 100 + total);
        let sum: u32 = (1..=rounds).sum::<u32>() * again;
        assert!(got[100..].iter().all(|v| *v == sum), "round {again}");
    }
    // Without a cooperative launch there is no workspace, and CUDA's own code traps.
    let plain = Launch { cooperative: false, ..launch };
    assert_eq!(d.engine.run(&k, &plain).unwrap_err().kind, FaultKind::Trap);
}

#[test]
fn printf_and_assert() {
    let d = Device::new();
    one(&d, "hello", 2, &[Arg::U32(7)]);
    let line = |t: u32| format!("hello 7 from {t}  3.50 str {} z|%|00000007\n", 7i64 << 33);
    assert_eq!(String::from_utf8(d.engine.realm().take_output()).unwrap(), line(0) + &line(1));
    one(&d, "asrt", 2, &[Arg::U32(4)]);
    assert!(d.engine.realm().take_output().is_empty() && d.engine.realm().take_complaints().is_empty());
    let m = load(&d);
    let f = d.run(&kernel(&m, "asrt"), [1; 3], [1, 1, 1], &[Arg::U32(3)]).unwrap_err();
    assert_eq!(f.kind, FaultKind::Assert);
    assert!(d.engine.realm().take_output().is_empty());
    let text = String::from_utf8(d.engine.realm().take_complaints()).unwrap();
    assert!(
        text.contains("features.cu:") && text.contains("thread: [0,0,0] Assertion `x != 3` failed."),
        "{text}"
    );
}

#[test]
fn recursion() {
    let d = Device::new();
    let o = d.put(&[0u32; 20]);
    one(&d, "recur", 20, &[Arg::U64(o)]);
    let mut want = vec![0, 1];
    while want.len() < 20 {
        want.push(want[want.len() - 1] + want[want.len() - 2]);
    }
    assert_eq!(d.get::<u32>(o, 20), want);
}

#[test]
fn function_pointers_and_double_functions() {
    let d = Device::new();
    let x: Vec<f64> = (0..64).map(|i| 0.03 + i as f64 * 0.37).collect();
    let (dx, o) = (d.put(&x), d.put(&[0f64; 64]));
    one(&d, "ptrs", 64, &[Arg::U64(o), Arg::U64(dx)]);
    for (i, (g, x)) in d.get::<f64>(o, 64).into_iter().zip(x).enumerate() {
        let w = match i % 4 {
            0 => x.sin(),
            1 => x.exp(),
            2 => x.powf(1.7),
            _ => x.ln(),
        };
        assert!((g - w).abs() <= 4e-15 * w.abs() + 1e-15, "{i}: {g} {w}");
    }
}

#[test]
fn float_functions() {
    let d = Device::new();
    let x: Vec<f32> = (0..64).map(|i| 0.05 + i as f32 * 0.11).collect();
    let (dx, o) = (d.put(&x), d.put(&[0f32; 1024]));
    one(&d, "mathf", 64, &[Arg::U64(o), Arg::U64(dx)]);
    let got: Vec<f32> = d.get(o, 1024);
    for (i, v) in x.iter().enumerate() {
        let w = f64::from(*v);
        let want: [(usize, f64); 14] = [
            (0, w.sin()),
            (1, w.exp()),
            (2, w.powf(f64::from(1.7f32))),
            (3, w.ln()),
            (4, w.tanh()),
            (5, f64::from(*v * 1000.0).cos()),
            (7, w.cbrt()),
            (8, 1.0 / w.sqrt()),
            (9, w / 3.0),
            (10, w.exp()),
            (11, w % f64::from(0.7f32)),
            (12, w.atan2(2.0)),
            (14, w.round()),
            (15, w * 8.0),
        ];
        for (j, want) in want {
            let g = f64::from(got[i * 16 + j]);
            let tolerance = if j == 10 { 2e-6 } else { 5e-7 };
            assert!(
                (g - want).abs() <= tolerance * want.abs().max(0.01),
                "function {j} of {v}: {g}, not {want}"
            );
        }
    }
}

#[test]
fn atomics() {
    let d = Device::new();
    let (a, u) = (d.put(&[0i32, 1000, 0, 0]), d.put(&[0u32, 0, 0, 0xfff, 0, 0, 0, 0]));
    let (f, g, l) = (d.put(&[0f32]), d.put(&[0f64]), d.put(&[0u64; 2]));
    let args = [a, u, f, g, l].map(Arg::U64);
    let m = load(&d);
    d.run(&kernel(&m, "atoms"), [10, 1, 1], [32, 1, 1], &args).unwrap();
    assert_eq!(d.get::<i32>(a, 4), [320, 0, 31, 5]);
    // inc and dec count modulo 11: 320 times up from 0, 320 times down from 0.
    assert_eq!(d.get::<u32>(u, 6), [320 % 11, 10, 7, 0xff, u32::MAX, 0]);
    assert_eq!(d.get::<f32>(f, 1), [480.0]);
    assert_eq!(d.get::<f64>(g, 1), [800.0]);
    assert_eq!(d.get::<u64>(l, 2), [960, 31]);
}

#[test]
fn cooperative_groups_in_a_warp() {
    let d = Device::new();
    let o = d.put(&[0u32; 64]);
    one(&d, "warpy", 64, &[Arg::U64(o)]);
    for (t, v) in d.get::<u32>(o, 64).into_iter().enumerate() {
        let t = t as u32;
        let tile: u32 = (t / 8 * 8..t / 8 * 8 + 8).sum();
        let warp = t / 32 * 32..t / 32 * 32 + 32;
        let thirds: Vec<u32> = warp.clone().filter(|i| i % 3 == 0).collect();
        let size = match thirds.iter().position(|i| *i == t) {
            Some(rank) => thirds.len() as u32 * 100 + rank as u32,
            None => 32,
        };
        let same: u32 = warp.filter(|i| i % 5 == t % 5).map(|i| 1 << (i % 32)).sum();
        assert_eq!(v, tile * 10000 + size + same % 7, "thread {t}");
    }
}

#[test]
fn a_lock_as_people_write_it() {
    let d = Device::new();
    let (lock, count) = (d.put(&[0u32]), d.put(&[0u32]));
    let m = load(&d);
    d.run(&kernel(&m, "lock"), [20, 1, 1], [96, 1, 1], &[Arg::U64(lock), Arg::U64(count)]).unwrap();
    assert_eq!(d.get::<u32>(count, 1), [20 * 96]);
}

#[test]
fn switch_and_integer_functions() {
    let d = Device::new();
    let (o, n) = (d.put(&[0i32; 90]), -123_456_789i32);
    one(&d, "sw", 90, &[Arg::U64(o), Arg::U32(n as u32)]);
    for (t, v) in d.get::<i32>(o, 90).into_iter().enumerate() {
        let want = match t % 9 {
            0 => n,
            1 => n.wrapping_mul(3),
            2 => n / 7,
            3 => n % 7,
            4 => n.count_ones() as i32,
            5 => n.leading_zeros() as i32,
            6 => n.reverse_bits(),
            7 => n.trailing_zeros() as i32 + 1,
            _ => (n as u32 & 0xffff | (t as u32 & 0xffff) << 16) as i32,
        };
        assert_eq!(v, want, "thread {t}");
    }
}

#[test]
fn wide_integers() {
    let d = Device::new();
    let (a, b) = (-0x0123_4567_89ab_cdefi64, 0x0000_0fed_cba9_8765u64);
    let o = d.put(&[0i64; 10]);
    one(&d, "i64", 1, &[Arg::U64(o), Arg::U64(a as u64), Arg::U64(b)]);
    let product = i128::from(a) * i128::from(b);
    let want = [
        a / b as i64,
        a % b as i64,
        (product >> 64) as i64,
        ((u128::from(a as u64) * u128::from(b)) >> 64) as i64,
        (a as u64 / b) as i64,
        i64::from(a.count_ones()),
        (a as f64 * 0.37).floor() as i64,
        (1.5f32 * b as f32) as u64 as i64,
        (product >> 64) as i64,
        ((product + i128::from(a)) / 1_000_003) as i64,
    ];
    assert_eq!(d.get::<i64>(o, 10), want);
}

#[test]
fn local_arrays_and_the_heap() {
    let d = Device::new();
    let (o, n) = (d.put(&[0i32; 64]), 100);
    one(&d, "loc", 64, &[Arg::U64(o), Arg::U32(n as u32)]);
    let want: Vec<i32> = (0..64).map(|t| (0..n).map(|i| (i * 7 + t) % 40 * n).sum()).collect();
    assert_eq!(d.get::<i32>(o, 64), want);
    let used = d.memory.used();
    one(&d, "heap", 64, &[Arg::U64(o)]);
    assert_eq!(d.get::<i32>(o, 64), (0..64).collect::<Vec<i32>>());
    assert_eq!(d.memory.used(), used);
}

#[test]
fn vectors_and_wild_pointers() {
    let d = Device::new();
    let x: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let (dx, o) = (d.put(&x), d.put(&[0f32; 128]));
    one(&d, "tex", 32, &[Arg::U64(dx), Arg::U64(o)]);
    assert_eq!(d.get::<f32>(o, 128), x);
    let m = load(&d);
    let f = d.run(&kernel(&m, "bad"), [1; 3], [1; 3], &[Arg::U64(o)]).unwrap_err();
    assert_eq!(f.kind, FaultKind::IllegalAddress);
}

#[test]
fn half_precision() {
    let d = Device::new();
    let f = half::f16::from_f32;
    let a: Vec<half::f16> = (0..32).map(|i| f(i as f32 * 0.125)).collect();
    let b: Vec<half::f16> = (0..32).map(|i| f(2.0 - i as f32 * 0.0625)).collect();
    let (da, db) = (d.put(&a), d.put(&b));
    let (o, q) = (d.put(&[f(0.0); 132]), d.put(&[half::bf16::from_f32(1.0); 32]));
    one(&d, "halfs", 32, &[Arg::U64(o), Arg::U64(da), Arg::U64(db), Arg::U64(q)]);
    let (o, q) = (d.get::<half::f16>(o, 132), d.get::<half::bf16>(q, 32));
    for i in 0..32 {
        let (x, y) = (a[i].to_f64(), b[i].to_f64());
        let sum = x * y + (x + y) + x.exp();
        let (got, want) = (o[i].to_f64(), (if x > y { x.sqrt() } else { sum }).max(x));
        assert!((got - want).abs() <= 2e-3 * want.abs(), "{i}: {got} {want}");
        assert!((q[i].to_f64() - (sum + 1.0)).abs() <= 1e-2 * sum, "{i}: {} {sum}", q[i]);
    }
}

/// A program that was built for fast mathematics runs with denormals flushed, and so do the threads that it makes.
#[test]
fn the_caller_may_flush_denormals() {
    let control = |new: u32| {
        let mut old = 0u32;
        // SAFETY: sets this thread's rounding and flushing only, and back below.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", "ldmxcsr [{}]", in(reg) &raw mut old, in(reg) &raw const new);
        }
        old
    };
    let d = Device::new();
    let l = d.load(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) { .reg .b64 p; .reg .f32 f;\n\
         ld.param.u64 p, [p0]; ld.global.f32 f, [p]; mul.f32 f, f, 0f3f000000; st.global.f32 [p], f; ret; }"
            .replace("(.param .u64 p)", "(.param .u64 p0)")
            .as_str(),
    );
    let p = d.put(&[f32::MIN_POSITIVE]);
    // Flush to zero, denormals are zero.
    let before = control(0x1f80 | 0x8040);
    let ran = d.run(&l.kernels()[0], [1, 1, 1], [1, 1, 1], &[Arg::U64(p)]);
    let after = control(before);
    ran.unwrap();
    assert_eq!(d.get::<u32>(p, 1), [0x0040_0000]);
    assert_eq!(after & !0x3f, 0x1f80 | 0x8040, "the caller's own setting is put back");
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

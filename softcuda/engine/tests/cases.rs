//! The kernels of the project's CUDA cases, as nvcc 13.5 compiles them, launched by hand.

mod common;

use common::{Arg, Device, pack};
use softcuda_engine::Launch;

#[test]
fn vector_add() {
    let d = Device::new();
    let m = d.load(include_str!("ptx/vector_add.ptx"));
    let n = (1 << 20) + 37;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let b: Vec<f32> = (0..n).map(|i| 3.0 - i as f32).collect();
    let (da, db, dc) = (d.put(&a), d.put(&b), d.put(&vec![-1f32; n]));
    let args = [Arg::U64(da), Arg::U64(db), Arg::U64(dc), Arg::U32(n as u32)];
    d.run(&m.kernels()[0], [(n as u32).div_ceil(256), 1, 1], [256, 1, 1], &args).unwrap();
    let c: Vec<f32> = d.get(dc, n);
    assert!((0..n).all(|i| c[i] == a[i] + b[i]));
}

#[test]
fn matmul() {
    let d = Device::new();
    let m = d.load(include_str!("ptx/matmul_shared.ptx"));
    let (rows, cols, inner) = (131usize, 77usize, 203usize);
    let a: Vec<f32> = (0..rows * inner).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..inner * cols).map(|i| ((i * 5) % 13) as f32 - 6.0).collect();
    let (da, db, dc) = (d.put(&a), d.put(&b), d.put(&vec![0f32; rows * cols]));
    let args = [
        Arg::U64(da),
        Arg::U64(db),
        Arg::U64(dc),
        Arg::U32(rows as u32),
        Arg::U32(cols as u32),
        Arg::U32(inner as u32),
    ];
    let grid = [(cols as u32).div_ceil(16), (rows as u32).div_ceil(16), 1];
    d.run(&m.kernels()[0], grid, [16, 16, 1], &args).unwrap();
    let c: Vec<f32> = d.get(dc, rows * cols);
    for i in 0..rows {
        for j in 0..cols {
            let want: f32 = (0..inner).fold(0.0, |w, x| w + a[i * inner + x] * b[x * cols + j]);
            assert_eq!(c[i * cols + j], want, "({i},{j})");
        }
    }
}

#[test]
fn reduce_and_votes() {
    let d = Device::new();
    let m = d.load(include_str!("ptx/reduce_shuffle.ptx"));
    let k = |name: &str| m.kernels().iter().find(|k| k.name.contains(name)).unwrap().clone();
    let n = 1_000_003u32;
    let x: Vec<i32> = (0..n).map(|i| ((i * 37) % 1001) as i32).collect();
    let want: u64 = x.iter().map(|v| *v as u64).sum();
    let (dx, out) = (d.put(&x), d.put(&[0u64]));
    let sum = k("sum");
    let launch = Launch {
        grid: [n.div_ceil(256), 1, 1],
        block: [256, 1, 1],
        dynamic_shared: 32,
        params: pack(&sum, &[Arg::U64(dx), Arg::U64(out), Arg::U32(n)]),
        ..Launch::default()
    };
    d.engine.run(&sum, &launch).unwrap();
    assert_eq!(d.get::<u64>(out, 1)[0], want);
    let v = d.put(&[0u32; 6]);
    d.run(&k("votes"), [1; 3], [64, 1, 1], &[Arg::U64(v)]).unwrap();
    assert_eq!(d.get::<u32>(v, 6), [0x4924_9249, 1, 0, 0x9249_2492, 1, 1]);
}

fn globals(ptx: &str) {
    let d = Device::new();
    let m = d.load(ptx);
    let n = 5000usize;
    let at = |name: &str| m.globals().find(|g| g.name.contains(name)).unwrap().addr;
    let c = [1f64, 0.5, 0.25, 0.125];
    assert!(d.memory.write(at("coef"), &common::bytes_of(&c)));
    let out = d.put(&vec![0f64; n]);
    let args = [Arg::U64(out), Arg::U32(n as u32)];
    d.run(&m.kernels()[0], [(n as u32).div_ceil(128), 1, 1], [128, 1, 1], &args).unwrap();
    assert_eq!(d.get::<i32>(at("counter"), 1), [n as i32]);
    let t: Vec<i64> = d.get(at("table"), 8);
    assert!((0..8).all(|k| t[k] == (4992 + k as i64) * 1_000_000_007));
    for (i, h) in d.get::<f64>(out, n).into_iter().enumerate() {
        let x = i as f64 * 0.25;
        let v = c.iter().rev().fold(0.0, |v, c| v * x + c);
        let v = match i % 4 {
            0 => v.sqrt(),
            1 => v,
            2 => v.floor(),
            _ => v.min(100.0),
        };
        assert!((h - v).abs() <= 1e-12 * v.abs(), "{i}: {h} {v}");
    }
}

#[test]
fn globals_and_constants() {
    globals(include_str!("ptx/globals_constants.ptx"));
}

/// Unoptimised code: calls, parameters in memory, generic addresses.
#[test]
fn globals_and_constants_unoptimised() {
    globals(include_str!("ptx/globals_constants_O0.ptx"));
}

#[test]
fn axpy_and_nop() {
    let d = Device::new();
    let m = d.load(include_str!("ptx/streams_events.ptx"));
    let n = 1 << 18;
    let x: Vec<f32> = (0..n).map(|i| (i % 17) as f32).collect();
    let (dx, dy) = (d.put(&x), d.put(&vec![1f32; n]));
    for _ in 0..5 {
        let args = [Arg::F32(2.0), Arg::U64(dx), Arg::U64(dy), Arg::U32(n as u32)];
        d.run(&m.kernels()[0], [n as u32 / 256, 1, 1], [256, 1, 1], &args).unwrap();
    }
    let y: Vec<f32> = d.get(dy, n);
    assert!((0..n).all(|i| y[i] == 1.0 + 10.0 * (i % 17) as f32));
    let m = d.load(include_str!("ptx/errors.ptx"));
    d.run(&m.kernels()[0], [1; 3], [32, 1, 1], &[]).unwrap();
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

#[test]
fn again_with_vectors() {
    common::again_with_vectors();
}

//! Kernels beside the same algorithm in C.

use crate::measure::{Bench, Figures, Row};
use anyhow::bail;
use bench_driver::Argument::{Buffer, Int};

const KERNELS: &str = include_str!("../kernels/kernels.ptx");
const TENSOR: &str = include_str!("../kernels/tensor.ptx");
const MI: usize = 1 << 20;

/// The rows.
#[rustfmt::skip]
pub fn rows() -> Vec<Row> {
    vec![
        Row { name: "vector_add 64 Mi, one element a thread", bar: "≤ 1.3×", measure: |b| vector_add(b, "vector_add", (64 * MI / 256) as u32) },
        Row { name: "vector_add 64 Mi, grid-stride, 64 blocks", bar: "≤ 2×", measure: |b| vector_add(b, "vector_add_stride", 64) },
        Row { name: "matmul 512³, 16×16", bar: "≤ 2×", measure: |b| matmul(b, "matmul16", 16, 1) },
        Row { name: "matmul 512³, 32×32", bar: "≤ 1.3×", measure: |b| matmul(b, "matmul32", 32, 1) },
        Row { name: "matmul 512³, 4 rows a thread", bar: "≤ 1×", measure: |b| matmul(b, "matmul32x4", 32, 4) },
        Row { name: "shuffle reduction 16 Mi, 8 elements a thread", bar: "≤ 1.5×", measure: |b| reduction(b, "reduce8", 16 * MI, 8) },
        Row { name: "shuffle reduction 1 Mi, one element a thread", bar: "≤ 4×", measure: |b| reduction(b, "reduce1", MI, 1) },
        Row { name: "Mandelbrot 512², 200 iterations", bar: "≤ 0.6×", measure: mandelbrot },
        Row { name: "Black–Scholes 1 Mi", bar: "≤ 0.6×", measure: black_scholes },
        Row { name: "n-body 4096", bar: "≤ 0.6×", measure: nbody },
        Row { name: "mma.sync f16 GEMM 512³", bar: "≤ 4×", measure: gemm },
    ]
}

/// Numbers between 0 and 1, always the same ones.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| next()).collect()
}

/// Fails unless all values differ by at most `tolerance`, relative to the larger of 1 and the expected one.
fn compare(got: &[f32], want: &[f32], tolerance: f32) -> anyhow::Result<()> {
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let close = (g - w).abs() <= tolerance * w.abs().max(1.0);
        if !close {
            bail!("element {i} is {g}, not {w}");
        }
    }
    Ok(())
}

fn vector_add(b: &Bench, name: &str, blocks: u32) -> anyhow::Result<Figures> {
    let n = 64 * MI;
    let (x, y) = (numbers(n, 1), numbers(n, 2));
    let (mut want, mut got) = (vec![0.0f32; n], vec![0.0f32; n]);
    let (dx, dy, dz) = (b.driver.put(&x)?, b.driver.put(&y)?, b.driver.put(&got)?);
    let module = b.driver.module(KERNELS)?;
    let kernel = module.kernel(name)?;
    let arguments = [Buffer(&dx), Buffer(&dy), Buffer(&dz), Int(n as u32)];
    let figures = b.pair(
        || kernel.run([blocks, 1], [256, 1], &arguments),
        || b.baseline.vector_add(&x, &y, &mut want),
    )?;
    dz.get(&mut got)?;
    compare(&got, &want, 0.0)?;
    Ok(figures)
}

fn matmul(b: &Bench, name: &str, tile: u32, rows: u32) -> anyhow::Result<Figures> {
    let n = 512;
    let (x, y) = (numbers(n * n, 3), numbers(n * n, 4));
    let (mut want, mut got) = (vec![0.0f32; n * n], vec![0.0f32; n * n]);
    let (dx, dy, dz) = (b.driver.put(&x)?, b.driver.put(&y)?, b.driver.put(&got)?);
    let module = b.driver.module(KERNELS)?;
    let kernel = module.kernel(name)?;
    let (grid, block) = ([n as u32 / tile; 2], [tile, tile / rows]);
    let arguments = [Buffer(&dx), Buffer(&dy), Buffer(&dz), Int(n as u32)];
    let figures =
        b.pair(|| kernel.run(grid, block, &arguments), || b.baseline.matmul(name, &x, &y, &mut want, n))?;
    dz.get(&mut got)?;
    compare(&got, &want, 1e-4)?;
    Ok(figures)
}

fn reduction(b: &Bench, name: &str, n: usize, each: usize) -> anyhow::Result<Figures> {
    let x = numbers(n, 5);
    let blocks = n / each / 256;
    let mut sums = vec![0.0f32; blocks];
    let (dx, ds) = (b.driver.put(&x)?, b.driver.put(&sums)?);
    let module = b.driver.module(KERNELS)?;
    let kernel = module.kernel(name)?;
    let arguments = [Buffer(&dx), Buffer(&ds), Int(n as u32)];
    let figures = b.pair(
        || kernel.run([blocks as u32, 1], [256, 1], &arguments),
        || {
            std::hint::black_box(b.baseline.sum(&x));
        },
    )?;
    ds.get(&mut sums)?;
    // One float sum of so many is itself off by more than all of the kernel's: compared in double precision.
    let sum = |v: &[f32]| v.iter().map(|v| f64::from(*v)).sum::<f64>() as f32;
    compare(&[sum(&sums)], &[sum(&x)], 1e-6)?;
    Ok(figures)
}

fn mandelbrot(b: &Bench) -> anyhow::Result<Figures> {
    let (w, h, most) = (512, 512, 200);
    let (mut want, mut got) = (vec![0i32; w * h], vec![0i32; w * h]);
    let out = b.driver.put(&got)?;
    let module = b.driver.module(KERNELS)?;
    let kernel = module.kernel("mandelbrot")?;
    let arguments = [Buffer(&out), Int(w as u32), Int(h as u32), Int(most as u32)];
    let figures = b.pair(
        || kernel.run([w as u32 / 32, h as u32 / 8], [32, 8], &arguments),
        || b.baseline.mandelbrot(&mut want, w, h, most),
    )?;
    out.get(&mut got)?;
    // nvcc contracts to fma, gcc does not here: points at the edge may escape at another iteration.
    let different = got.iter().zip(&want).filter(|(g, w)| g != w).count();
    if different * 100 > want.len() {
        bail!("{different} of {} points differ", want.len());
    }
    Ok(figures)
}

fn black_scholes(b: &Bench) -> anyhow::Result<Figures> {
    let spread = |seed, low: f32, high: f32| -> Vec<f32> {
        numbers(MI, seed).into_iter().map(|v| low + (high - low) * v).collect()
    };
    let (spot, strike, years) = (spread(6, 5.0, 30.0), spread(7, 1.0, 100.0), spread(8, 0.25, 10.0));
    let (mut want, mut got) = (vec![0.0f32; MI], vec![0.0f32; MI]);
    let (ds, dx, dt) = (b.driver.put(&spot)?, b.driver.put(&strike)?, b.driver.put(&years)?);
    let call = b.driver.put(&got)?;
    let module = b.driver.module(KERNELS)?;
    let kernel = module.kernel("black_scholes")?;
    let arguments = [Buffer(&ds), Buffer(&dx), Buffer(&dt), Buffer(&call), Int(MI as u32)];
    let figures = b.pair(
        || kernel.run([MI as u32 / 256, 1], [256, 1], &arguments),
        || b.baseline.black_scholes(&spot, &strike, &years, &mut want),
    )?;
    call.get(&mut got)?;
    compare(&got, &want, 1e-4)?;
    Ok(figures)
}

fn nbody(b: &Bench) -> anyhow::Result<Figures> {
    let n = 4096;
    let bodies = numbers(4 * n, 9);
    let (mut want, mut got) = (vec![0.0f32; 4 * n], vec![0.0f32; 4 * n]);
    let (db, df) = (b.driver.put(&bodies)?, b.driver.put(&got)?);
    let module = b.driver.module(KERNELS)?;
    let kernel = module.kernel("nbody")?;
    let arguments = [Buffer(&db), Buffer(&df), Int(n as u32)];
    let figures = b.pair(
        || kernel.run([n as u32 / 256, 1], [256, 1], &arguments),
        || b.baseline.nbody(&bodies, &mut want),
    )?;
    df.get(&mut got)?;
    compare(&got, &want, 1e-3)?;
    Ok(figures)
}

/// The bits of a number between 0 and 1 in half precision, cut to what fits.
fn half(v: f32) -> u16 {
    let bits = v.to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 15;
    if exponent <= 0 { 0 } else { ((exponent as u32) << 10 | (bits >> 13 & 0x3ff)) as u16 }
}

fn unhalf(h: u16) -> f32 {
    if h == 0 {
        0.0
    } else {
        f32::from_bits((u32::from(h >> 10) + 127 - 15) << 23 | u32::from(h & 0x3ff) << 13)
    }
}

fn gemm(b: &Bench) -> anyhow::Result<Figures> {
    let n = 512;
    let halves = |seed| numbers(n * n, seed).into_iter().map(half).collect::<Vec<u16>>();
    let (x, y) = (halves(10), halves(11));
    let floats = |v: &[u16]| v.iter().map(|h| unhalf(*h)).collect::<Vec<f32>>();
    let (fx, fy) = (floats(&x), floats(&y));
    let (mut want, mut got) = (vec![0.0f32; n * n], vec![0.0f32; n * n]);
    let (dx, dy, dz) = (b.driver.put(&x)?, b.driver.put(&y)?, b.driver.put(&got)?);
    let module = b.driver.module(TENSOR)?;
    let kernel = module.kernel("gemm")?;
    let arguments = [Buffer(&dx), Buffer(&dy), Buffer(&dz), Int(n as u32)];
    let warps = (n / 16) * (n / 8);
    let figures = b.pair(
        || kernel.run([warps as u32 / 4, 1], [128, 1], &arguments),
        || b.baseline.matmul("gemm", &fx, &fy, &mut want, n),
    )?;
    dz.get(&mut got)?;
    compare(&got, &want, 1e-4)?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_exact_both_ways() {
        assert_eq!((half(0.5), half(0.75), half(0.0)), (0x3800, 0x3a00, 0));
        for h in [0x3800u16, 0x3a00, 0x3bff, 0x0400] {
            assert_eq!(half(unhalf(h)), h);
        }
    }

    #[test]
    fn a_wrong_value_is_seen() {
        assert!(compare(&[1.0, 2.0], &[1.0, 2.0], 0.0).is_ok());
        assert!(compare(&[1.0, 2.1], &[1.0, 2.0], 1e-3).is_err());
        assert!(compare(&[f32::NAN], &[1.0], 1e-3).is_err());
    }
}

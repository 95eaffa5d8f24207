//! What a launch costs.

use crate::measure::{Bench, Figures, Row, median};

/// The rows.
pub fn rows() -> Vec<Row> {
    vec![
        Row {
            name: "empty kernel <<<1,32>>>, launch + synchronise",
            bar: "aim 10 µs",
            measure: synchronised,
        },
        Row { name: "empty kernel <<<1,32>>>, queued launch", bar: "aim 1 µs", measure: queued },
    ]
}

const KERNELS: &str = include_str!("../kernels/kernels.ptx");

/// Median of 1000 launches, each waited for.
fn synchronised(b: &Bench) -> anyhow::Result<Figures> {
    let module = b.driver.module(KERNELS)?;
    let kernel = module.kernel("empty")?;
    kernel.run([1, 1], [32, 1], &[])?;
    b.alone(|| {
        let mut times = Vec::with_capacity(1000);
        for _ in 0..1000 {
            let (result, t) = b.time(|| kernel.run([1, 1], [32, 1], &[]));
            result?;
            times.push(t);
        }
        Ok(median(times.into_iter()))
    })
}

/// The host's part of a launch: 100 of them without a wait between, which is not in it. Median of 50 such hundreds.
fn queued(b: &Bench) -> anyhow::Result<Figures> {
    let module = b.driver.module(KERNELS)?;
    let kernel = module.kernel("empty")?;
    kernel.run([1, 1], [32, 1], &[])?;
    b.alone(|| {
        let mut times = Vec::with_capacity(50);
        for _ in 0..50 {
            let (result, t) = b.time(|| (0..100).try_for_each(|_| kernel.launch([1, 1], [32, 1], &[])));
            result?;
            b.driver.synchronize()?;
            times.push(t / 100.0);
        }
        Ok(median(times.into_iter()))
    })
}

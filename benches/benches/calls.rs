//! CUDA calls through the built pool (shared memory, the null driver): `cargo bench -p pool-bench --bench calls`, after
//! `cargo build --release`. It starts a private server and then itself under `pool-run`.

#![allow(dead_code)] // of the modules that are pool-bench's

#[path = "../src/programs.rs"]
mod programs;
#[path = "../src/server.rs"]
mod server;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use criterion::Criterion;

use bench_driver::{Driver, EMPTY_KERNEL};
use programs::{Programs, Road};
use server::Server;

/// Set in the process that measures.
const INSIDE: &str = "GPUPOOL_BENCH_INSIDE";
/// Posts between two synchronises, which are not timed.
const BATCH: u64 = 100;

fn main() -> anyhow::Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return measure();
    }
    let programs = Programs::find()?;
    let driver = programs.driver("null")?;
    let server = Server::start(&programs, &driver, &[])?;
    let mut command = programs.command(Road::Shm, &driver, &server.address(Road::Shm))?;
    command.arg(&programs.own).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let status = command.status().context("cannot start pool-run")?;
    ensure!(status.success(), "the measuring process ended with {status}");
    Ok(())
}

fn measure() -> anyhow::Result<()> {
    let cuda = Driver::load(Path::new("libcuda.so.1"))?;
    let (buffer, stream) = (cuda.alloc(4096)?, cuda.stream()?);
    let kernel = cuda.kernel(EMPTY_KERNEL, "empty")?;
    let mut word = [0; 4];
    let times = Criterion::default().warm_up_time(Duration::from_millis(200));
    let times = times.measurement_time(Duration::from_millis(600)).sample_size(20);
    let mut criterion = times.configure_from_args();

    let mut posts = |name, post: &dyn Fn() -> anyhow::Result<()>| {
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|calls| batches(&cuda, calls, post).expect("the driver accepts the call"));
        });
    };
    posts("post: cuMemsetD32Async", &|| cuda.memset_async(buffer, 1, stream));
    posts("post: cuLaunchKernel, 4 parameters", &|| cuda.launch(kernel, buffer, stream));
    criterion.bench_function("call: cuMemcpyDtoH, 4 bytes", |bencher| {
        bencher.iter(|| cuda.dtoh(&mut word, buffer).expect("the driver accepts the call"));
    });
    criterion.bench_function("call: cuMemGetInfo", |bencher| {
        bencher.iter(|| cuda.mem_get_info().expect("the driver accepts the call"));
    });
    criterion.bench_function("local: cuDeviceGet", |bencher| {
        bencher.iter(|| cuda.device().expect("the driver accepts the call"));
    });
    criterion.final_summary();
    Ok(())
}

/// The time that the program waits for `calls` posts.
fn batches(cuda: &Driver, calls: u64, post: &dyn Fn() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let mut time = Duration::ZERO;
    let mut left = calls;
    while left > 0 {
        let batch = left.min(BATCH);
        let start = Instant::now();
        (0..batch).try_for_each(|_| post())?;
        time += start.elapsed();
        cuda.synchronize()?;
        left -= batch;
    }
    Ok(time)
}

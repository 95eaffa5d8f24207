//! `pool-bench network`: what long bytes do to short calls over TCP, by the number of a session's data connections, and what a
//! copy costs when nothing was sent for a while.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bench_driver::Driver;
use serde::{Deserialize, Serialize};

use crate::latency::machine;
use crate::programs::{self, Programs, Road};
use crate::report::COPY_BYTES;
use crate::server::Server;

/// A copy that a pause might make slow.
const SOME: usize = 1 << 20;
/// The pause.
const PAUSE: Duration = Duration::from_secs(2);
/// Copies behind a pause, and as many without one.
const PAUSES: usize = 5;

/// The arguments of `pool-bench network`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Numbers of data connections, one session for each
    #[arg(long, value_delimiter = ',', default_values_t = [1u8, 2, 3, 5])]
    connections: Vec<u8>,

    /// Seconds of each measure
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,

    /// The private server's driver
    #[arg(long, value_name = "soft|null|LIBRARY", default_value = "null")]
    driver: String,
}

/// What one session has measured, in microseconds and (copies) milliseconds.
#[derive(Serialize, Deserialize)]
pub struct Figures {
    /// A small call while nothing else happens, and beside copies to and from the device: median, 99th percentile, longest.
    alone: [f64; 3],
    beside_htod: [f64; 3],
    beside_dtoh: [f64; 3],
    /// 64 MiB without anything beside it.
    htod_ms: f64,
    dtoh_ms: f64,
    /// 1 MiB, one after the other, and each after a pause.
    warm: f64,
    paused: f64,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let driver = programs.driver(&arguments.driver)?;
    let server = Server::start(&programs, &driver, &[])?;
    println!("Machine: {}\nDriver: {}\n", machine(), arguments.driver);
    println!("Small call: 4 bytes from the device; median / 99th percentile / longest, in µs.\n");
    println!(
        "| connections | alone | beside HtoD of 64 MiB | beside DtoH of 64 MiB | HtoD 64 MiB | DtoH 64 MiB | 1 MiB | 1 MiB after 2 s |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for connections in &arguments.connections {
        let mut command =
            programs.own_command(Road::Tcp, &driver, &server.address(Road::Tcp), "client-network")?;
        command.arg(arguments.seconds.to_string());
        command.env("GPUPOOL_TCP_CONNECTIONS", connections.to_string());
        let output = programs::output(&mut command)?;
        ensure!(output.status.success(), "the measuring process ended with {}", output.status);
        let f: Figures = serde_json::from_slice(&output.stdout).context("no figures")?;
        let three = |[p50, p99, max]: [f64; 3]| format!("{p50:.1} / {p99:.1} / {max:.0}");
        println!(
            "| {connections} | {} | {} | {} | {:.1} ms | {:.1} ms | {:.0} µs | {:.0} µs |",
            three(f.alone),
            three(f.beside_htod),
            three(f.beside_dtoh),
            f.htod_ms,
            f.dtoh_ms,
            f.warm,
            f.paused
        );
    }
    let (warm, paused) = bare()?;
    println!("\nBare connection, 1 MiB and its acknowledgement: {warm:.0} µs, after 2 s: {paused:.0} µs");
    Ok(())
}

/// One session's measures; prints them as JSON.
pub fn client(library: &Path, seconds: u16) -> anyhow::Result<()> {
    let cuda = Driver::load(library)?;
    let time = Duration::from_secs(seconds.into());
    let small = cuda.alloc(4096)?;
    let large = cuda.alloc(COPY_BYTES)?;
    let mut host = vec![1u8; COPY_BYTES];
    let call = |word: &mut [u8; 4]| cuda.dtoh(word, small);
    let calls = |until: &dyn Fn() -> bool| -> anyhow::Result<[f64; 3]> {
        let (mut word, mut took) = ([0; 4], Vec::new());
        while !until() {
            let start = Instant::now();
            call(&mut word)?;
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        took.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| took.get((took.len() as f64 * part) as usize).copied();
        let all = [at(0.5), at(0.99), took.last().copied()].map(|figure| figure.unwrap_or(f64::NAN));
        Ok(all)
    };
    let start = Instant::now();
    let alone = calls(&|| start.elapsed() > time)?;
    let beside = |to_device: bool| -> anyhow::Result<[f64; 3]> {
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let copies = scope.spawn(|| -> anyhow::Result<()> {
                let own = Driver::load(library)?;
                let mut host = vec![1u8; COPY_BYTES];
                while !end.load(Relaxed) {
                    if to_device { own.htod(large, &host)? } else { own.dtoh(&mut host, large)? }
                }
                Ok(())
            });
            let start = Instant::now();
            let figures = calls(&|| start.elapsed() > time);
            end.store(true, Relaxed);
            match copies.join() {
                Ok(result) => result?,
                Err(_) => bail!("the copying thread failed"),
            }
            figures
        })
    };
    let (beside_htod, beside_dtoh) = (beside(true)?, beside(false)?);
    let median = |each: &mut dyn FnMut() -> anyhow::Result<()>, pause: Duration| -> anyhow::Result<f64> {
        let mut took = Vec::new();
        for _ in 0..PAUSES {
            std::thread::sleep(pause);
            let start = Instant::now();
            each()?;
            took.push(start.elapsed().as_secs_f64());
        }
        took.sort_unstable_by(f64::total_cmp);
        Ok(took[PAUSES / 2])
    };
    let none = Duration::ZERO;
    let htod = |bytes: usize, pause| {
        median(&mut || cuda.htod(large, &host[..bytes]).and_then(|()| cuda.synchronize()), pause)
    };
    let htod_ms = htod(COPY_BYTES, none)? * 1e3;
    let (warm, paused) = (htod(SOME, none)? * 1e6, htod(SOME, PAUSE)? * 1e6);
    let dtoh_ms = median(&mut || cuda.dtoh(&mut host, large), none)? * 1e3;
    let figures = Figures { alone, beside_htod, beside_dtoh, htod_ms, dtoh_ms, warm, paused };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// The same 1 MiB over a bare connection: warm and after a pause, in microseconds.
fn bare() -> anyhow::Result<(f64, f64)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    std::thread::spawn(move || {
        let mut bytes = vec![0u8; SOME];
        while far.read_exact(&mut bytes).and_then(|()| far.write_all(&[0])).is_ok() {}
    });
    let bytes = vec![1u8; SOME];
    let mut median = |pause: Duration| -> anyhow::Result<f64> {
        let mut took = Vec::new();
        for _ in 0..PAUSES {
            std::thread::sleep(pause);
            let start = Instant::now();
            near.write_all(&bytes)?;
            near.read_exact(&mut [0])?;
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        took.sort_unstable_by(f64::total_cmp);
        Ok(took[PAUSES / 2])
    };
    Ok((median(Duration::ZERO)?, median(PAUSE)?))
}

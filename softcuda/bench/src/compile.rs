//! What loading and compiling costs. Each text gets a name that no run had before, so that no cache knows it.

use crate::measure::{Bench, Figures, Row};
use anyhow::Context;
use bench_driver::Argument::{Buffer, Float, Int};
use std::sync::atomic::{AtomicU32, Ordering};

/// The rows.
pub fn rows() -> Vec<Row> {
    vec![
        Row { name: "compile of a 500-line kernel (first launch)", bar: "≤ 20 ms", measure: first_launch },
        Row {
            name: "compile of CUB's largest radix sort kernel", bar: "≤ 300 ms", measure: largest_of_cub
        },
        Row { name: "load of a 10 MB module", bar: "seconds, 1 GiB", measure: large_module },
    ]
}

const COMPILE: &str = include_str!("../kernels/compile.ptx");

/// A name that is not used again, in this process or another.
fn new_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos());
    format!("k{}_{since}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A first launch less a second one.
fn first_launch(b: &Bench) -> anyhow::Result<Figures> {
    let data = b.driver.put(&[0.0f32; 32 * 32])?;
    let arguments = [Buffer(&data), Buffer(&data), Buffer(&data), Int(32), Float(1.0), Float(0.0)];
    let once = || {
        let name = new_name();
        let module = b.driver.module(&COMPILE.replace("lines500", &name))?;
        let kernel = module.kernel(&name)?;
        let launch = || -> anyhow::Result<f64> {
            let (result, t) = b.time(|| kernel.run([1, 1], [32, 8], &arguments));
            result.map(|()| t)
        };
        Ok(launch()? - launch()?)
    };
    once()?; // the first compile of a process starts the compiler
    b.alone(once)
}

/// The program of `scripts/build-cub-cases` beside this one, in the same target directory.
const CUB: &str = "../cases/cub/radix_sort";

/// The longest fatbin in a program, as words.
fn fatbin(program: &[u8]) -> Option<Vec<u64>> {
    // Magic number, version 1, and 16 bytes of header; then the length of what follows.
    const BEGIN: [u8; 8] = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    let image = |at: usize| {
        let length = u64::from_le_bytes(program.get(at + 8..at + 16)?.try_into().ok()?);
        program.get(at..at.checked_add(16)?.checked_add(usize::try_from(length).ok()?)?)
    };
    let begins = program.windows(8).enumerate().filter(|(_, w)| *w == BEGIN);
    let longest = begins.filter_map(|(at, _)| image(at)).max_by_key(|i| i.len())?;
    let word = |bytes: &[u8]| {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(all)
    };
    Some(longest.chunks(8).map(word).collect())
}

/// Of all kernels that nvcc has made of CUB's radix sort the one that takes longest.
fn largest_of_cub(b: &Bench) -> anyhow::Result<Figures> {
    let path = std::env::current_exe()?.with_file_name(CUB);
    let program = std::fs::read(&path)
        .with_context(|| format!("{}: make it by scripts/build-cub-cases", path.display()))?;
    let image = fatbin(&program).with_context(|| format!("{} has no fatbin", path.display()))?;
    let once = || {
        // Loaded anew each time, so that nothing is compiled yet.
        let module = b.driver.fatbin(&image)?;
        let mut longest = 0.0f64;
        for kernel in module.kernels()? {
            let (loaded, t) = b.time(|| kernel.load());
            loaded?;
            longest = longest.max(t);
        }
        Ok(longest)
    };
    b.alone(once)
}

/// The same kernel under many names, until there are 10 MB. The memory is told too, on the standard error.
#[allow(clippy::print_stderr)]
fn large_module(b: &Bench) -> anyhow::Result<Figures> {
    let start = COMPILE.find(".visible").unwrap_or(0);
    let (head, body) = COMPILE.split_at(start);
    let base = new_name();
    let mut text = head.to_string();
    let mut number = 0;
    while text.len() < 10_000_000 {
        // Shared variables are named after the kernel, so they are renamed with it.
        text.push_str(&body.replace("lines500", &format!("{base}_{number}")));
        number += 1;
    }
    b.alone(|| {
        let (module, t) = b.time(|| b.driver.module(&text));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(line) = status.lines().find(|l| l.starts_with("VmRSS")) {
            eprintln!("10 MB module, {number} kernels: {t:.2} s, {line}");
        }
        module?;
        Ok(t)
    })
}

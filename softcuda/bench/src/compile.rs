//! What loading and compiling costs. Each text gets a name that no run had before, so that no cache knows it.

use crate::measure::{Bench, Figures, Row};
use bench_driver::Argument::{Buffer, Float, Int};
use std::sync::atomic::{AtomicU32, Ordering};

/// The rows.
pub fn rows() -> Vec<Row> {
    vec![
        Row { name: "compile of a 500-line kernel (first launch)", bar: "≤ 20 ms", measure: first_launch },
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

//! Reads PTX files and compiles every kernel in them: says what is not supported, and how long it took.
//!
//!     cargo run --release -p softcuda-engine --example ptx_check -- FILE.ptx…
#![allow(clippy::print_stdout)]

use softcuda_engine::{Engine, Loaded, Memory, Module};
use std::time::Instant;

fn main() {
    let memory = Memory::new(4 << 30).expect("address space");
    let engine = Engine::new(memory.clone(), 1);
    let mut bad = 0;
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        let start = Instant::now();
        let loaded = Module::parse(&text).map_err(|e| e.to_string());
        let parsed = start.elapsed();
        let loaded = loaded.and_then(|m| Loaded::new(&memory, m).map_err(|e| e.to_string()));
        match loaded {
            Err(e) => {
                bad += 1;
                println!("{file}: {e}");
            }
            Ok(l) => {
                let start = Instant::now();
                for k in l.kernels() {
                    if let Err(e) = engine.prepare(k) {
                        bad += 1;
                        println!("{file}: {}: {e}", k.name);
                    }
                }
                let n = l.kernels().len();
                println!(
                    "{file}: {} bytes parsed in {parsed:?}, {n} kernels compiled in {:?}",
                    text.len(),
                    start.elapsed()
                );
            }
        }
    }
    std::process::exit(i32::from(bad > 0));
}

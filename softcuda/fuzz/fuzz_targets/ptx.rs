//! Any text, and several texts (with a zero between them) that are linked, are refused or become a module, and each of its
//! kernels is compiled or refused: nothing panics, and memory stays bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use softcuda_engine::{Engine, Loaded, Memory, Module};
use std::sync::{Arc, OnceLock};

fuzz_target!(|data: &[u8]| {
    static DEVICE: OnceLock<(Arc<Memory>, Arc<Engine>)> = OnceLock::new();
    let (memory, engine) = DEVICE.get_or_init(|| {
        let memory = Memory::new(64 << 20).expect("address space");
        (memory.clone(), Engine::new(memory, 1))
    });
    let Ok(text) = std::str::from_utf8(data) else { return };
    let texts: Vec<&str> = text.split('\0').collect();
    let module = if let [text] = texts[..] { Module::parse(text) } else { Module::link(&texts) };
    let Ok(module) = module else { return };
    let Ok(loaded) = Loaded::new(memory, module) else { return };
    for kernel in loaded.kernels().iter().take(2) {
        let _ = engine.prepare(kernel);
    }
});

//! Any text is refused or becomes a module, and each of its kernels is compiled or refused: nothing panics, and memory
//! stays bounded.
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
    let Ok(module) = Module::parse(text) else { return };
    let Ok(loaded) = Loaded::new(memory, module) else { return };
    for kernel in loaded.kernels().iter().take(2) {
        let _ = engine.prepare(kernel);
    }
});

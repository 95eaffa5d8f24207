//! What the tests share.
#![allow(dead_code)]

use softcuda_engine::{Engine, Fault, Kernel, Launch, Loaded, Memory, Module};
use std::sync::Arc;

pub struct Device {
    pub memory: Arc<Memory>,
    pub engine: Arc<Engine>,
}

impl Device {
    pub fn new() -> Device {
        let memory = Memory::new(1 << 30).unwrap();
        let engine = Engine::new(memory.clone(), 2);
        Device { memory, engine }
    }

    pub fn load(&self, ptx: &str) -> Arc<Loaded> {
        let module = Module::parse(ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
        Loaded::new(&self.memory, module).unwrap()
    }

    pub fn put<T: Copy>(&self, data: &[T]) -> u64 {
        let bytes = bytes_of(data);
        let a = self.memory.alloc(bytes.len() as u64, 256).unwrap();
        assert!(self.memory.write(a, &bytes));
        a
    }

    pub fn get<T: Copy + Default>(&self, addr: u64, count: usize) -> Vec<T> {
        let mut out = vec![T::default(); count];
        let mut bytes = vec![0; count * size_of::<T>()];
        assert!(self.memory.read(addr, &mut bytes));
        // SAFETY: plain numbers of exactly that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.as_mut_ptr().cast(), bytes.len()) };
        out
    }

    pub fn run(&self, k: &Arc<Kernel>, grid: [u32; 3], block: [u32; 3], args: &[Arg]) -> Result<(), Fault> {
        let launch = Launch {
            grid,
            block,
            dynamic_shared: 0,
            params: pack(k, args),
            cooperative: false,
            ..Launch::default()
        };
        self.engine.run(k, &launch)
    }
}

pub fn bytes_of<T: Copy>(data: &[T]) -> Vec<u8> {
    // SAFETY: plain numbers.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) }.to_vec()
}

#[derive(Clone, Copy)]
pub enum Arg {
    U32(u32),
    U64(u64),
    F32(f32),
}

pub fn pack(k: &Kernel, args: &[Arg]) -> Vec<u8> {
    let mut out = vec![0; k.param_bytes() as usize];
    assert_eq!(k.params.len(), args.len());
    for (p, a) in k.params.iter().zip(args) {
        let b = match a {
            Arg::U32(v) => v.to_le_bytes().to_vec(),
            Arg::U64(v) => v.to_le_bytes().to_vec(),
            Arg::F32(v) => v.to_le_bytes().to_vec(),
        };
        out[p.offset as usize..p.offset as usize + b.len()].copy_from_slice(&b);
    }
    out
}

/// Which code a process makes: see `codegen::Variant`.
pub const CODEGEN: &str = "SOFTCUDA_CODEGEN";

/// Runs all tests of this program again, with code of one thread at a time instead of vectors.
pub fn again_one_thread_at_a_time() {
    again("scalar");
}

/// Runs all tests of this program again, with vectors for long kernels too.
pub fn again_with_vectors() {
    again("vector");
}

fn again(code: &str) {
    if std::env::var_os(CODEGEN).is_some() {
        return; // this is that run, or somebody has chosen
    }
    let me = std::env::current_exe().unwrap();
    let out = std::process::Command::new(me).env(CODEGEN, code).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "with {CODEGEN}={code}: {text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("test result: ok") && !text.contains(" 0 passed"), "{text}");
}

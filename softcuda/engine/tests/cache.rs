//! Code that comes from a file runs as code that was just made, at other addresses too.

mod common;

use common::{Arg, Device};
use softcuda_engine::{CodeCache, Engine, Memory};
use std::sync::Arc;

/// Global and constant variables, one reached by its address plus an offset; a shared one; a function.
const PTX: &str = "
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .u32 table[4] = {10, 20, 30, 40};
.const .align 4 .u32 scale[2] = {1, 3};
.func (.param .u32 r) twice(.param .u32 x) { .reg .b32 v; ld.param.u32 v, [x]; add.u32 v, v, v; st.param.u32 [r], v; ret; }
.visible .entry k(.param .u64 out) {
  .reg .b32 a, b, c; .reg .b64 p, q;
  .shared .align 4 .u32 s;
  ld.param.u64 p, [out];
  ld.global.u32 a, [table+8];
  ld.const.u32 b, [scale+4];
  mul.lo.u32 a, a, b;
  mov.u64 q, table;
  ld.global.u32 b, [q+12];
  st.shared.u32 [s], b;
  ld.shared.u32 c, [s];
  add.u32 a, a, c;
  { .param .u32 x; .param .u32 y; st.param.u32 [x], a; call (y), twice, (x); ld.param.u32 a, [y]; }
  st.global.u32 [p], a;
  ret;
}
.visible .entry other(.param .u64 out) { .reg .b64 p; ld.param.u64 p, [out]; st.global.u32 [p], 5; ret; }
";

fn device(cache: &Arc<CodeCache>) -> Device {
    let memory = Memory::new(1 << 30).unwrap();
    let engine = Engine::with_cache(memory.clone(), 2, Some(cache.clone()));
    Device { memory, engine }
}

fn run(d: &Device, kernel: usize) -> u32 {
    // Another layout of the memory each time.
    d.memory.alloc(1 << 20, 256).unwrap();
    let loaded = d.load(PTX);
    let out = d.put(&[0u32]);
    d.run(&loaded.kernels()[kernel], [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    d.get(out, 1)[0]
}

#[test]
fn code_from_a_file_is_linked_to_this_process() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Arc::new(CodeCache::new(directory.path().join("code"), 1 << 20));
    let (a, b) = (device(&cache), device(&cache));
    let want = 2 * (30 * 3 + 40);
    assert_eq!((run(&a, 0), cache.hits()), (want, 0));
    assert_eq!((run(&a, 0), cache.hits()), (want, 1));
    assert_eq!((run(&b, 0), cache.hits()), (want, 2));
    assert_eq!((run(&b, 1), cache.hits()), (5, 2), "another kernel of the same text");
    let again = Arc::new(CodeCache::new(directory.path().join("code"), 1 << 20));
    assert_eq!((run(&device(&again), 0), again.hits()), (want, 1), "another cache in the same place");
}

#[test]
fn without_a_usable_directory_kernels_are_compiled() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = Arc::new(CodeCache::new(file.path().to_path_buf(), 1 << 20));
    let d = device(&cache);
    assert_eq!((run(&d, 0), run(&d, 0), cache.hits()), (260, 260, 0));
}

//! Long kernels begin with code for one thread at a time, and get vectors when they have run for long enough: the results are
//! the same, whichever code a launch has, also while it changes.
//!
//! The tests run in a process of their own in which all kernels are put off until their first launch is over.

mod common;

use common::{Arg, CODEGEN, Device};
use softcuda_engine::{CodeCache, Engine, Memory};
use std::sync::Arc;

/// A sum over the warp by shuffles, one over the block through shared memory, lanes that go different ways, functions that are
/// approximated, a counter that all threads add to, and last the sum of a block's counts.
const PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 count, .param .u32 n) {
  .reg .pred p; .reg .b32 t, i, b, d, v, w, s; .reg .b64 a, o, c; .reg .f32 x, y;
  .shared .align 4 .f32 sums[8];
  ld.param.u64 a, [in]; ld.param.u64 o, [out]; ld.param.u64 c, [count]; ld.param.u32 s, [n];
  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 d, %ntid.x;
  mad.lo.u32 i, b, d, t;
  mad.wide.u32 a, i, 4, a;
  mad.wide.u32 o, i, 4, o;
  ld.global.f32 x, [a];
  sin.approx.f32 y, x; fma.rn.f32 x, x, x, y; ex2.approx.f32 y, y; add.f32 x, x, y; sqrt.rn.f32 y, x; div.rn.f32 x, x, y;
  and.b32 v, t, 3; setp.eq.u32 p, v, 0;
  @p bra odd;
  mul.f32 x, x, 0f40400000;
  bra join;
odd:
  atom.global.add.u32 v, [c], 1;
join:
  mov.b32 v, x;
  shfl.sync.bfly.b32 w, v, 1, 31, -1; mov.b32 y, w; add.f32 x, x, y; mov.b32 v, x;
  shfl.sync.bfly.b32 w, v, 2, 31, -1; mov.b32 y, w; add.f32 x, x, y; mov.b32 v, x;
  shr.u32 v, t, 5; shl.b32 v, v, 2; mov.u32 w, sums; add.u32 w, w, v;
  and.b32 v, t, 31; setp.eq.u32 p, v, 0;
  @p st.shared.f32 [w], x;
  bar.sync 0;
  ld.shared.f32 y, [sums+4]; add.f32 x, x, y;
  setp.ge.u32 p, i, s;
  @p ret;
  st.global.f32 [o], x;
  ret;
}
.visible .entry wild(.param .u64 at) {
  .reg .b64 a; .reg .b32 t;
  ld.param.u64 a, [at]; mov.u32 t, %tid.x;
  st.global.u32 [a], t;
  ret;
}
";

const N: u32 = 4 * 128;

fn input() -> Vec<f32> {
    (0..N).map(|i| i as f32 * 0.37 + 0.5).collect()
}

/// Runs one test of this file in a process in which kernels are put off.
fn put_off(test: &str) -> bool {
    if std::env::var(CODEGEN).is_ok_and(|v| v == "tiers") {
        return true;
    }
    let me = std::env::current_exe().unwrap();
    let out = std::process::Command::new(me).args(["--exact", test]).env(CODEGEN, "tiers").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("1 passed"), "{text}");
    false
}

/// What one launch gives: the numbers, and how often lanes counted.
fn launch(d: &Device, k: &Arc<softcuda_engine::Kernel>, from: u64, block: u32) -> (Vec<u32>, u32) {
    let (out, count) = (d.put(&vec![0u32; N as usize]), d.put(&[0u32]));
    let args = [Arg::U64(from), Arg::U64(out), Arg::U64(count), Arg::U32(N - 3)];
    d.run(k, [N / block, 1, 1], [block, 1, 1], &args).unwrap();
    (d.get(out, N as usize), d.get::<u32>(count, 1)[0])
}

fn files(directory: &std::path::Path) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}

#[test]
fn vectors_follow_and_give_the_same() {
    if !put_off("vectors_follow_and_give_the_same") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let code = directory.path().join("code");
    let device = || {
        let memory = Memory::new(1 << 30).unwrap();
        let cache = Arc::new(CodeCache::new(code.clone(), 1 << 24));
        (Device { engine: Engine::with_cache(memory.clone(), 2, Some(cache.clone())), memory }, cache)
    };
    let (d, cache) = device();
    let loaded = d.load(PTX);
    let kernels = loaded.kernels();
    let k = kernels.iter().find(|k| k.name == "k").unwrap();
    let from = d.put(&input());
    d.engine.prepare(k).unwrap();
    assert_eq!((files(&code), cache.hits()), (1, 0), "what runs one thread at a time");
    let first = launch(&d, k, from, 128);
    assert_eq!(first.1, N / 4);
    d.engine.settle();
    assert_eq!((files(&code), cache.hits()), (3, 0), "vectors, and their version for single lanes");
    for _ in 0..2 {
        assert_eq!(launch(&d, k, from, 128), first, "vectors");
    }
    d.engine.settle();
    assert_eq!((files(&code), cache.hits()), (3, 0), "nothing more is made");
    // Vectors that are there are used at once.
    let (d, cache) = device();
    let loaded = d.load(PTX);
    let kernels = loaded.kernels();
    let k = kernels.iter().find(|k| k.name == "k").unwrap();
    let from = d.put(&input());
    assert_eq!(launch(&d, k, from, 128), first);
    assert_eq!((files(&code), cache.hits()), (3, 2), "both from files");
}

#[test]
fn launches_of_many_threads_see_either_code() {
    if !put_off("launches_of_many_threads_see_either_code") {
        return;
    }
    for block in [128, 64, 256] {
        let d = Device::new();
        let loaded = d.load(PTX);
        let kernels = loaded.kernels();
        let k = kernels.iter().find(|k| k.name == "k").unwrap();
        let from = d.put(&input());
        let all: Vec<_> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..4)
                .map(|_| s.spawn(|| (0..20).map(|_| launch(&d, k, from, block)).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        d.engine.settle();
        let last = launch(&d, k, from, block);
        assert!(all.iter().all(|a| *a == last), "blocks of {block}");
    }
}

#[test]
fn modules_and_engines_go_while_vectors_are_made() {
    if !put_off("modules_and_engines_go_while_vectors_are_made") {
        return;
    }
    let d = Device::new();
    let from = d.put(&input());
    let used = d.memory.used();
    for _ in 0..20 {
        let loaded = d.load(PTX);
        let k = loaded.kernels().iter().find(|k| k.name == "k").unwrap().clone();
        let (out, count) = (d.put(&vec![0u32; N as usize]), d.put(&[0u32]));
        let args = [Arg::U64(from), Arg::U64(out), Arg::U64(count), Arg::U32(N)];
        d.run(&k, [4, 1, 1], [128, 1, 1], &args).unwrap();
        assert!(d.memory.free(out) && d.memory.free(count));
    }
    assert_eq!(d.memory.used(), used);
}

#[test]
fn a_fault_is_the_same_fault() {
    if !put_off("a_fault_is_the_same_fault") {
        return;
    }
    let d = Device::new();
    let loaded = d.load(PTX);
    let kernels = loaded.kernels();
    let k = kernels.iter().find(|k| k.name == "wild").unwrap();
    let fault = || {
        let f = d.run(k, [1; 3], [32, 1, 1], &[Arg::U64(0x10)]).unwrap_err();
        (f.kind, f.to_string())
    };
    let first = fault();
    d.engine.settle();
    assert_eq!(fault(), first);
}

/// Blocks wait for the host. Then each thread takes two numbers of its block, one after the other: one thread at a time gets two that
/// follow each other, lanes of a group do not.
const WAITING: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry waits(.param .u64 flags, .param .u64 out, .param .u64 numbers) {
  .reg .pred p; .reg .b32 t, b, v, w; .reg .b64 f, o, n;
  ld.param.u64 f, [flags]; ld.param.u64 o, [out]; ld.param.u64 n, [numbers];
  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x;
  mad.wide.u32 n, b, 4, n;
  mad.lo.u32 t, b, 128, t;
  mad.wide.u32 o, t, 8, o;
  st.volatile.global.u32 [f+4], 1;
again:
  ld.volatile.global.u32 v, [f];
  setp.eq.u32 p, v, 0;
  @p bra again;
  atom.global.add.u32 v, [n], 1;
  atom.global.add.u32 w, [n], 1;
  st.global.v2.u32 [o], {v, w};
  ret;
}
.visible .entry counts(.param .u64 out) {
  .reg .b32 t, b, v; .reg .b64 o;
  ld.param.u64 o, [out];
  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x;
  mad.lo.u32 t, b, 128, t;
  mad.wide.u32 o, t, 4, o;
  atom.global.add.u32 v, [o], t;
  ret;
}
";

#[test]
fn a_grid_goes_on_with_vectors() {
    if !put_off("a_grid_goes_on_with_vectors") {
        return;
    }
    let d = Device::new();
    let loaded = d.load(WAITING);
    let k = &loaded.kernels()[0];
    let resident = d.engine.max_resident_blocks(k, 128, 0) as usize;
    let blocks = 2 * resident;
    let flags = d.put(&[0u32; 2]);
    let (out, numbers) = (d.put(&vec![0u32; blocks * 256]), d.put(&vec![0u32; blocks]));
    std::thread::scope(|s| {
        let args = [Arg::U64(flags), Arg::U64(out), Arg::U64(numbers)];
        let grid = [blocks as u32, 1, 1];
        let running = s.spawn({
            let d = &d;
            move || d.run(k, grid, [128, 1, 1], &args)
        });
        while d.get::<u32>(flags + 4, 1)[0] == 0 {
            assert!(!running.is_finished(), "the grid ended without having begun");
            std::thread::yield_now();
        }
        // The first block has begun, and has asked for vectors: now they are there.
        d.engine.settle();
        assert!(d.memory.write(flags, &1u32.to_le_bytes()));
        running.join().unwrap().unwrap();
    });
    assert!(d.get::<u32>(numbers, blocks).iter().all(|n| *n == 256), "all threads ran, and once");
    let got = d.get::<u32>(out, blocks * 256);
    let alone: Vec<bool> =
        got.chunks(256).map(|block| block.chunks(2).all(|pair| pair[1] == pair[0] + 1)).collect();
    let first = alone.iter().position(|alone| !alone);
    assert_eq!(
        first,
        Some(resident),
        "those that may wait for each other have the code that the grid began with"
    );
    assert!(!alone[resident..].contains(&true), "all others have vectors");
}

#[test]
fn blocks_run_once_whatever_code_they_have() {
    if !put_off("blocks_run_once_whatever_code_they_have") {
        return;
    }
    let blocks = 20_000;
    for _ in 0..4 {
        let d = Device::new();
        let loaded = d.load(WAITING);
        let out = d.put(&vec![0u32; blocks * 128]);
        d.run(&loaded.kernels()[1], [blocks as u32, 1, 1], [128, 1, 1], &[Arg::U64(out)]).unwrap();
        let got = d.get::<u32>(out, blocks * 128);
        assert!(got.iter().enumerate().all(|(i, v)| *v == i as u32));
    }
}

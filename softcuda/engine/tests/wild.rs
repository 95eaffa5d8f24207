//! Kernels that read and write anywhere: a fault, and a process that is as it was.

mod common;

use common::{Arg, Device};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use softcuda_engine::FaultKind;
use std::fmt::Write;

/// Every kind of access, at `q`.
const ACCESSES: [&str; 20] = [
    "ld.u8 r, [q]; add.u32 s, s, r;",
    "ld.global.u32 r, [q]; add.u32 s, s, r;",
    "ld.global.v4.u32 {r, r, r, r}, [q]; add.u32 s, s, r;",
    "ld.volatile.global.u64 v, [q]; cvt.u32.u64 s, v;",
    "ld.acquire.gpu.global.u32 r, [q]; add.u32 s, s, r;",
    "ld.const.u32 r, [q]; add.u32 s, s, r;",
    "ld.local.u32 r, [q]; add.u32 s, s, r;",
    "st.u8 [q], 7;",
    "st.global.u32 [q], 7;",
    "st.global.v2.u64 [q], {v, v};",
    "st.local.u64 [q], v;",
    "st.release.gpu.global.u32 [q], 7;",
    "atom.global.add.u32 r, [q], 7; add.u32 s, s, r;",
    "atom.global.cas.b64 v, [q], 0, 7; cvt.u32.u64 s, v;",
    "red.global.max.u32 [q], 0xffffffff;",
    "atom.global.add.f32 f, [q], 0f3F800000;",
    "st.async.release.gpu.global.u32 [q], 7;",
    "red.async.release.gpu.global.add.u32 [q], 7;",
    "st.bulk.weak [q], 64, 0;",
    "mbarrier.arrive.b64 _, [q];",
];

/// A kernel an access: thread t accesses `address + t · stride`, behind a branch that only some threads take if `odd` is 1.
fn module() -> String {
    let mut text = String::from(".version 8.0\n.target sm_75\n.address_size 64\n");
    for (i, access) in ACCESSES.iter().enumerate() {
        writeln!(
            text,
            ".visible .entry k{i}(.param .u64 address, .param .u64 stride, .param .u32 odd, .param .u64 out) {{
             .reg .pred p; .reg .b32 r, s, t, m; .reg .f32 f; .reg .b64 q, v, w, o;
             ld.param.u64 q, [address]; ld.param.u64 w, [stride]; ld.param.u32 m, [odd]; ld.param.u64 o, [out];
             mov.u32 t, %tid.x; mov.u32 s, 0; cvt.u64.u32 v, t; mad.lo.u64 q, v, w, q;
             and.b32 m, m, t; setp.ne.u32 p, m, 0; @p bra SKIP;\n{access}\nSKIP: st.global.u32 [o], s; ret; }}"
        )
        .unwrap();
    }
    text
}

/// Memory of the host that a kernel must not touch.
struct Host {
    heap: Vec<u64>,
    stack: [u64; 16],
}

/// Sorts of addresses: anywhere, near nothing, in the host's memory, its code, and the engine's own state.
fn address(kind: u8, any: u64, d: &Device, host: &Host) -> u64 {
    let near = any % 256;
    match kind {
        0 => any,
        1 => any >> 17,
        2 => near,
        3 => u64::MAX - near,
        4 => host.heap.as_ptr() as u64 + near,
        5 => host.stack.as_ptr() as u64 + near % 100,
        6 => module as fn() -> String as usize as u64 + near,
        7 => std::sync::Arc::as_ptr(&d.engine) as u64 + near,
        _ => std::sync::Arc::as_ptr(&d.memory) as u64 + near,
    }
}

#[test]
fn wild_accesses_are_faults_and_touch_nothing() {
    let d = Device::new();
    let m = d.load(&module());
    let out = d.put(&[0u32]);
    let host = Host { heap: vec![0x5a5a_5a5a_5a5a_5a5a; 4096], stack: [0xa5a5_a5a5_a5a5_a5a5; 16] };
    let strategy = (
        0..ACCESSES.len(),
        0..9u8,
        any::<u64>(),
        prop::sample::select(vec![0u64, 1, 4, 8, 16, 4096, 1 << 20, 1 << 45, u64::MAX]),
        0..2u32,
        prop::sample::select(vec![1u32, 7, 32, 64]),
    );
    let mut runner = TestRunner::new(Config { cases: 1500, ..Config::default() });
    let run = |(access, kind, any, stride, odd, threads): (usize, u8, u64, u64, u32, u32)| {
        let at = address(kind, any, &d, &host);
        // What falls into the device's own range of 1 TiB may be memory in use.
        let own = |t: u32| at.wrapping_add(stride.wrapping_mul(u64::from(t))).abs_diff(out) < 1 << 40;
        prop_assume!((0..threads).all(|t| !own(t)));
        let args = [Arg::U64(at), Arg::U64(stride), Arg::U32(odd), Arg::U64(out)];
        let fault = d.run(&m.kernels()[access], [1; 3], [threads, 1, 1], &args).unwrap_err();
        let expected = [FaultKind::IllegalAddress, FaultKind::MisalignedAddress];
        prop_assert!(expected.contains(&fault.kind), "{}: {fault}", ACCESSES[access]);
        prop_assert!(host.heap.iter().all(|w| *w == 0x5a5a_5a5a_5a5a_5a5a), "{}", ACCESSES[access]);
        prop_assert!(host.stack.iter().all(|w| *w == 0xa5a5_a5a5_a5a5_a5a5), "{}", ACCESSES[access]);
        Ok(())
    };
    runner.run(&strategy, run).unwrap_or_else(|e| panic!("{e}"));
    // The engine still works.
    d.run(&m.kernels()[7], [1; 3], [32, 1, 1], &[Arg::U64(out), Arg::U64(0), Arg::U32(0), Arg::U64(out)])
        .unwrap();
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

//! Kernels that read and write anywhere: a fault, and a process that is as it was.

mod common;

use common::{Arg, Device};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use softcuda_engine::{FaultKind, Loaded};
use std::fmt::Write;
use std::sync::Arc;

/// Every kind of access, at the address `q`, or at the offset `h` in shared memory. `z` is where the kernel may write.
const ACCESSES: [&str; 49] = [
    "ld.u8 r, [q]; add.u32 s, s, r;",
    "ld.global.u32 r, [q]; add.u32 s, s, r;",
    "ld.global.nc.v4.u32 {r, r, r, r}, [q]; add.u32 s, s, r;",
    "ld.global.v8.u32 {r, r, r, r, r, r, r, r}, [q]; add.u32 s, s, r;",
    "ld.volatile.global.u64 v, [q]; cvt.u32.u64 s, v;",
    "ld.acquire.gpu.global.u32 r, [q]; add.u32 s, s, r;",
    "ld.relaxed.gpu.global.b128 x, [q];",
    "ldu.global.u32 r, [q]; add.u32 s, s, r;",
    "ld.const.u32 r, [q]; add.u32 s, s, r;",
    "ld.local.u32 r, [q]; add.u32 s, s, r;",
    "ld.param.u32 r, [q]; add.u32 s, s, r;",
    "ld.shared.u32 r, [h]; add.u32 s, s, r;",
    "ld.volatile.shared.v2.u32 {r, r}, [h]; add.u32 s, s, r;",
    "ld.shared::cluster.u32 r, [h]; add.u32 s, s, r;",
    "st.u8 [q], 7;",
    "st.global.u32 [q], 7;",
    "st.global.v2.u64 [q], {v, v};",
    "st.global.v4.b64 [q], {v, v, v, v};",
    "st.local.u64 [q], v;",
    "st.volatile.global.u32 [q], 7;",
    "st.release.gpu.global.u32 [q], 7;",
    "st.relaxed.gpu.global.b128 [q], x;",
    "st.shared.u32 [h], 7;",
    "st.shared.v4.u32 [h], {r, r, r, r};",
    "st.shared::cluster.u32 [h], 7;",
    "atom.global.add.u32 r, [q], 7; add.u32 s, s, r;",
    "atom.global.cas.b64 v, [q], 0, 7; cvt.u32.u64 s, v;",
    "atom.global.cas.b16 g, [q], g, g;",
    "atom.global.cas.b128 x, [q], x, x;",
    "atom.global.exch.b128 x, [q], x;",
    "red.global.max.u32 [q], 0xffffffff;",
    "red.global.add.v4.f32 [q], {f, f, f, f};",
    "atom.global.v2.f32.add {f, f}, [q], {f, f};",
    "red.global.add.noftz.v4.f16x2 [q], {r, r, r, r};",
    "atom.global.add.f32 f, [q], 0f3F800000;",
    "atom.shared.add.u32 r, [h], 7; add.u32 s, s, r;",
    "atom.shared.cas.b64 v, [h], 0, 7;",
    "st.async.release.gpu.global.u32 [q], 7;",
    "red.async.release.gpu.global.add.u32 [q], 7;",
    "st.bulk.weak [q], 64, 0;",
    "mbarrier.arrive.b64 _, [q];",
    "mbarrier.init.shared.b64 [h], 1;",
    "cp.async.ca.shared.global [room], [q], 16;",
    "cp.async.cg.shared.global [h], [z], 16;",
    "cp.async.ca.shared.global [room], [q], 8, 4;",
    // Two accesses by one register, of which one may be tested for both; and one that is behind what waits.
    "ld.global.u32 r, [q]; st.global.u32 [q+256], 7; add.u32 s, s, r;",
    "ld.global.u32 r, [q+8]; st.volatile.global.u32 [q], 7; add.u32 s, s, r;",
    "{ .param .b64 a; .param .b64 b; .param .b32 n; st.param.b64 [a], q; st.param.b64 [b], z; call (n), vprintf, (a, b); }",
    "{ .param .b64 a; .param .b64 b; .param .b32 n; st.param.b64 [a], w; st.param.b64 [b], q; call (n), vprintf, (a, b); }",
];

/// What a whole warp does together, at addresses of its lanes.
const OF_WARPS: [&str; 10] = [
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r, r, r, r}, [h];",
    "ldmatrix.sync.aligned.m8n8.x1.trans.b16 {r}, [q];",
    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [h], {r, r, r, r};",
    "stmatrix.sync.aligned.m8n8.x2.b16 [q], {r, r};",
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {r, r, r, r, r, r, r, r}, [q], 16;",
    "wmma.load.c.sync.aligned.col.m16n16k16.f32 {f, f, f, f, f, f, f, f}, [q], 64;",
    "wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {r, r, r, r, r, r, r, r}, [h], 16;",
    "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [q], {f, f, f, f, f, f, f, f}, 16;",
    "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [h], {f, f, f, f, f, f, f, f}, 16;",
    "ld.global.u32 r, [q]; shfl.sync.bfly.b32 r, r, 1, 31, -1; st.global.u32 [q+512], r;",
];

/// Handles of textures and surfaces that are none.
const HANDLES: [&str; 5] = [
    "tex.1d.v4.u32.s32 {r, r, r, r}, [q, {r}];",
    "suld.b.1d.b32.trap r, [q, {r}];",
    "sust.b.1d.b32.trap [q, {r}], r;",
    "sured.b.add.1d.u32.trap [q, {r}], r;",
    "txq.width.b32 r, [q];",
];

/// A kernel an access: thread t accesses `address + t · stride`, behind a branch that only some threads take if `odd` is 1.
fn module(accesses: &[&str]) -> String {
    let mut text = String::from(
        ".version 9.0\n.target sm_75\n.address_size 64\n.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .global .align 4 .b8 format[4] = {37, 100, 0, 0};\n",
    );
    for (i, access) in accesses.iter().enumerate() {
        writeln!(
            text,
            ".visible .entry k{i}(.param .u64 address, .param .u64 stride, .param .u32 odd, .param .u64 out) {{
             .shared .align 16 .b8 room[64]; .reg .b128 x; .reg .pred p; .reg .b16 g; .reg .b32 r, s, t, m, h; .reg .f32 f; .reg .b64 q, v, w, o, z;
             ld.param.u64 q, [address]; ld.param.u64 w, [stride]; ld.param.u32 m, [odd]; ld.param.u64 o, [out];
             mov.u32 t, %tid.x; mov.u32 s, 0; mov.u32 r, 0; mov.b16 g, 0; mov.f32 f, 0f00000000; cvt.u64.u32 v, t; mad.lo.u64 q, v, w, q; mov.b128 x, {{v, v}};
             cvt.u32.u64 h, q; or.b32 h, h, 0x40000000; mov.u64 z, o; mov.u64 w, format;
             and.b32 m, m, t; setp.ne.u32 p, m, 0; @p bra SKIP;\n{access}\nSKIP: st.global.u32 [o], s; ret; }}"
        )
        .unwrap();
    }
    text
}

/// Memory of the host that a kernel must not touch, and places in the device's own range where nothing is.
struct World {
    d: Device,
    m: Arc<Loaded>,
    accesses: Vec<&'static str>,
    out: u64,
    /// 64 MiB that were given back, and so much that nobody has asked for.
    freed: u64,
    never: u64,
    heap: Vec<u64>,
    stack: [u64; 16],
    /// How many accesses were made.
    made: std::cell::Cell<usize>,
}

/// How much of the device's range is free on purpose.
const FREE: u64 = 64 << 20;
/// How many sorts of addresses there are; see [`World::address`].
const SORTS: u8 = 13;

impl World {
    fn new(accesses: &[&'static str]) -> World {
        let d = Device::new();
        let m = d.load(&module(accesses));
        let out = d.put(&[0u32; 64]);
        let mut world = World {
            d,
            m,
            accesses: accesses.to_vec(),
            out,
            freed: 0,
            never: 0,
            heap: vec![0x5a5a_5a5a_5a5a_5a5a; 4096],
            stack: [0xa5a5_a5a5_a5a5_a5a5; 16],
            made: Default::default(),
        };
        // What the engine itself takes from the device's memory is taken by the first faults.
        for access in 0..accesses.len() {
            for threads in [1, 7, 32, 64] {
                world.run(access, 16, 0, 0, threads);
            }
        }
        let freed = world.d.memory.alloc(FREE, 1 << 16).unwrap();
        let behind = world.d.memory.alloc(4 << 20, 1 << 16).unwrap();
        assert!(world.d.memory.free(freed));
        // The range is 1 TiB, and is given out from its beginning.
        (world.freed, world.never) = (freed, behind + (1 << 38));
        world
    }

    /// Sorts of addresses: anywhere, near nothing, in the host's memory, its code, the engine's own state, and where there is
    /// memory of the device no more, or never was.
    fn address(&self, sort: u8, any: u64) -> u64 {
        let near = any % 256;
        match sort {
            0 => any,
            1 => any >> 17,
            2 => near,
            3 => u64::MAX - near,
            4 => self.heap.as_ptr() as u64 + near,
            5 => self.stack.as_ptr() as u64 + near % 100,
            6 => module as fn(&[&str]) -> String as usize as u64 + near,
            7 => Arc::as_ptr(&self.d.engine) as u64 + near,
            8 => Arc::as_ptr(&self.d.memory) as u64 + near,
            9 => self.freed + any % FREE / 2,
            10 => (self.freed + any % FREE / 2) & !255,
            11 => self.never + any % (1 << 37),
            _ => (self.never + any % (1 << 37)) & !255,
        }
    }

    fn run(
        &self,
        access: usize,
        at: u64,
        stride: u64,
        odd: u32,
        threads: u32,
    ) -> Option<softcuda_engine::Fault> {
        let args = [Arg::U64(at), Arg::U64(stride), Arg::U32(odd), Arg::U64(self.out)];
        self.d.run(&self.m.kernels()[access], [1; 3], [threads, 1, 1], &args).err()
    }

    /// Whether a thread's address is one that the kernel may have: the free places are a part of the device's range of 1 TiB, and
    /// what else lies there may be in use.
    fn allowed(&self, at: u64, stride: u64, threads: u32) -> bool {
        (0..threads).any(|t| {
            let at = at.wrapping_add(stride.wrapping_mul(u64::from(t)));
            // What is accessed beside the address is less than 8 KiB away.
            let inside = |start: u64, len: u64| at.wrapping_sub(start) < len - 8192;
            let free = inside(self.freed, FREE) || inside(self.never, 1 << 38);
            at.abs_diff(self.out) < 1 << 40 && !free
        })
    }

    fn check(&self, access: usize, at: u64, stride: u64, odd: u32, threads: u32) {
        if self.allowed(at, stride, threads) {
            return;
        }
        self.made.set(self.made.get() + 1);
        let what =
            format!("{} at {at:#x} + {stride:#x} t, {threads} threads, odd {odd}", self.accesses[access]);
        let fault = self.run(access, at, stride, odd, threads).unwrap_or_else(|| panic!("no fault: {what}"));
        let expected = [FaultKind::IllegalAddress, FaultKind::MisalignedAddress];
        assert!(expected.contains(&fault.kind), "{what}: {fault}");
        assert!(self.heap.iter().all(|w| *w == 0x5a5a_5a5a_5a5a_5a5a), "{what}");
        assert!(self.stack.iter().all(|w| *w == 0xa5a5_a5a5_a5a5_a5a5), "{what}");
    }

    /// Every access at every sort of address, by one thread and by whole warps, at one address and at neighbouring ones.
    fn every(&self, threads: &[u32]) {
        for access in 0..self.accesses.len() {
            for sort in 0..SORTS {
                for (i, threads) in threads.iter().enumerate() {
                    for stride in [0, 16] {
                        let any = (access as u64 * 31 + u64::from(sort) + i as u64 + stride)
                            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        // Aligned, so that it is the address that is wrong.
                        self.check(access, self.address(sort, any) & !63, stride, 0, *threads);
                    }
                }
            }
        }
        // Hardly any of them falls into the device's own memory.
        let all = self.accesses.len() * usize::from(SORTS) * threads.len() * 2;
        assert!(self.made.get() * 10 > all * 9, "{} of {all}", self.made.get());
    }

    fn still_works(&self) {
        let words: Vec<u32> = (0..64).collect();
        let from = self.d.put(&words);
        let m = self.d.load(
            ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 pi, .param .u64 po) { .reg .b64 i, o, w; .reg .b32 t;\n\
             ld.param.u64 i, [pi]; ld.param.u64 o, [po]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 4; add.u64 i, i, w; add.u64 o, o, w;\n\
             ld.global.u32 t, [i]; add.u32 t, t, 1; st.global.u32 [o], t; ret; }",
        );
        self.d.run(&m.kernels()[0], [1; 3], [64, 1, 1], &[from, self.out].map(Arg::U64)).unwrap();
        assert_eq!(self.d.get::<u32>(self.out, 64), (1..65).collect::<Vec<u32>>());
    }
}

#[test]
fn wild_accesses_are_faults_and_touch_nothing() {
    let world = World::new(&ACCESSES);
    world.every(&[1, 32, 64]);
    let strategy = (
        0..ACCESSES.len(),
        0..SORTS,
        any::<u64>(),
        prop::sample::select(vec![0u64, 1, 4, 8, 16, 4096, 1 << 20, 1 << 45, u64::MAX]),
        0..2u32,
        prop::sample::select(vec![1u32, 7, 32, 64]),
    );
    let mut runner = TestRunner::new(Config { cases: 3000, ..Config::default() });
    let run = |(access, sort, any, stride, odd, threads): (usize, u8, u64, u64, u32, u32)| {
        world.check(access, world.address(sort, any), stride, odd, threads);
        Ok(())
    };
    runner.run(&strategy, run).unwrap_or_else(|e| panic!("{e}"));
    world.still_works();
}

#[test]
fn wild_accesses_of_whole_warps() {
    let world = World::new(&OF_WARPS);
    world.every(&[32, 64]);
    world.still_works();
}

#[test]
fn wild_handles() {
    let world = World::new(&HANDLES);
    world.every(&[1, 32]);
    world.still_works();
}

/// What nobody has allocated may be given to `free`, and to the text of a failed assertion: nothing is touched.
#[test]
fn wild_pointers_of_device_functions() {
    let world = World::new(&ACCESSES[..1]);
    let functions = [
        (
            "free",
            ".extern .func free(.param .b64 p);",
            "{ .param .b64 p; st.param.b64 [p], q; call free, (p); }",
        ),
        (
            "assert",
            ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);",
            "{ .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 c; st.param.b64 [m], q; st.param.b64 [f], q; st.param.b32 [l], 1;\n\
             st.param.b64 [n], q; st.param.b64 [c], 1; call __assertfail, (m, f, l, n, c); }",
        ),
    ];
    for (name, declaration, call) in functions {
        let m = world.d.load(&format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n{declaration}\n.visible .entry k(.param .u64 address) {{ .reg .b64 q; ld.param.u64 q, [address];\n{call}\nret; }}"
        ));
        for sort in 0..SORTS {
            for threads in [1, 32] {
                let at = world.address(sort, 0x1234_5678_9abc_def0);
                let fault = world.d.run(&m.kernels()[0], [1; 3], [threads, 1, 1], &[Arg::U64(at)]).err();
                if name == "assert" {
                    assert_eq!(fault.map(|f| f.kind), Some(FaultKind::Assert), "{name} of {at:#x}");
                }
                assert!(world.heap.iter().all(|w| *w == 0x5a5a_5a5a_5a5a_5a5a), "{name} of {at:#x}");
            }
        }
    }
    world.still_works();
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

#[test]
fn again_with_vectors() {
    common::again_with_vectors();
}

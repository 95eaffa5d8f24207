//! Kernels of full warps in windows of which they may not touch all: what a test of several accesses at once has found good
//! stands for no access that was not among them.

mod common;

use common::{Arg, Device};
use softcuda_engine::Access;
use softcuda_engine::FaultKind;

/// What lies between the accesses that are tested together and the one that may not be made; `u` is true in all threads.
const BETWEEN: [(&str, &str); 9] = [
    ("nothing", ""),
    ("uniform guard", "@u "),
    ("vote", "vote.sync.all.pred z, u, 0xffffffff;"),
    ("shuffle", "shfl.sync.idx.b32 r, r, 0, 31, 0xffffffff;"),
    ("match", "match.any.sync.b32 r, r, 0xffffffff;"),
    ("warp barrier", "bar.warp.sync 0xffffffff;"),
    ("barrier", "bar.sync 0;"),
    ("mask", "activemask.b32 r;"),
    ("call", "call count, (o);"),
];

/// Accesses at `q` plus `AT`.
const STORES: [&str; 9] = [
    "st.global.u32 [q+AT], 7;",
    "st.u32 [q+AT], 7;",
    "st.volatile.global.u32 [q+AT], 7;",
    "st.relaxed.gpu.global.u32 [q+AT], 7;",
    "st.release.sys.global.u32 [q+AT], 7;",
    "atom.global.exch.b32 r, [q+AT], 7;",
    "red.global.max.u32 [q+AT], 7;",
    "atom.global.cas.b32 r, [q+AT], 0, 7;",
    "@u st.volatile.u32 [q+AT], 7;",
];
const LOADS: [&str; 5] = [
    "ld.global.u32 s, [q+AT];",
    "ld.volatile.global.u32 s, [q+AT];",
    "ld.relaxed.gpu.global.u32 s, [q+AT];",
    "ld.acquire.gpu.u32 s, [q+AT];",
    "@u ld.u32 s, [q+AT];",
];

/// A kernel that makes `first`, then `between` and `then`, by one register: the same address in all threads if `stride` is 0,
/// one behind the other's if it is 4.
fn kernel(first: &str, between: &str, then: &str, at: u32) -> String {
    // A guard is one for the access itself.
    let then = if between.starts_with('@') { then.trim_start_matches("@u ") } else { then };
    let then = then.replace("AT", &at.to_string());
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n
         .func count(.param .u64 at) {{ .reg .b64 a; ld.param.u64 a, [at]; red.global.add.u32 [a], 1; ret; }}
         .visible .entry same(.param .u64 p, .param .u64 counter, .param .u32 yes) {{
         .reg .pred u, z; .reg .b32 r, s, t, y; .reg .b64 q, o;
         ld.param.u64 q, [p]; ld.param.u64 o, [counter]; ld.param.u32 y, [yes];
         setp.ne.u32 u, y, 0;\n{first}\n{between}{then}\nred.global.add.u32 [o+4], s; ret; }}
         .visible .entry beside(.param .u64 p, .param .u64 counter, .param .u32 yes) {{
         .reg .pred u, z; .reg .b32 r, s, t, y; .reg .b64 q, o;
         ld.param.u64 q, [p]; ld.param.u64 o, [counter]; ld.param.u32 y, [yes];
         mov.u32 t, %tid.x; mad.wide.u32 q, t, 4, q;
         setp.ne.u32 u, y, 0;\n{first}\n{between}{then}\nred.global.add.u32 [o+4], s; ret; }}"
    )
}

/// Host memory of `words` words, all 0, that begins a page.
struct Host {
    memory: Vec<u32>,
    from: usize,
    words: usize,
}

const PAGE: usize = 4096;

impl Host {
    fn new(words: usize) -> Host {
        let memory = vec![0u32; words + PAGE / 4];
        let from = (memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr()) / 4;
        Host { memory, from, words }
    }

    /// The address, also for kernels to write there.
    fn address(&mut self) -> u64 {
        self.memory[self.from..].as_mut_ptr().expose_provenance() as u64
    }

    fn untouched(&self) -> bool {
        std::hint::black_box(&self.memory)[self.from..self.from + self.words].iter().all(|w| *w == 0)
    }
}

/// Runs both kernels of `text` by full warps with `address`, and says how each ended.
fn run(d: &Device, text: &str, address: u64) -> [Result<(), FaultKind>; 2] {
    let m = d.load(text);
    let counter = d.put(&[0u32; 2]);
    let ends = ["same", "beside"].map(|name| {
        let kernel = m.kernels().iter().find(|k| k.name == name).unwrap();
        let args = [Arg::U64(address), Arg::U64(counter), Arg::U32(1)];
        d.run(kernel, [1; 3], [64, 1, 1], &args).map_err(|fault| fault.kind)
    });
    d.memory.free(counter);
    ends
}

#[test]
fn what_may_only_be_read_is_not_written() {
    let d = Device::new();
    for (name, between) in BETWEEN {
        for store in STORES {
            let text = kernel("ld.global.u32 r, [q+64]; ld.u32 s, [q+64];", between, store, 64);
            let mut host = Host::new(1024);
            let at = host.address();
            assert!(d.memory.open_window(at, 4096, Access::Read));
            let ends = run(&d, &text, at);
            assert_eq!(ends, [Err(FaultKind::IllegalAddress); 2], "{name}: {store}");
            assert!(host.untouched(), "{name}: {store}");
            assert!(d.memory.close_window(at));
            // It is this that made the fault.
            assert!(d.memory.open_window(at, 4096, Access::ReadWrite));
            assert_eq!(run(&d, &text, at), [Ok(()); 2], "{name}: {store}");
            assert!(!host.untouched(), "{name}: {store}");
            assert!(d.memory.close_window(at));
        }
    }
}

#[test]
fn what_lies_between_two_windows_is_not_touched() {
    let d = Device::new();
    for (name, between) in BETWEEN {
        for access in STORES.iter().chain(&LOADS) {
            let first = "ld.global.u32 r, [q]; ld.global.u32 s, [q+2048]; ld.u32 r, [q]; ld.u32 s, [q+2048];";
            let text = kernel(first, between, access, 1024);
            let mut host = Host::new(1024);
            let at = host.address();
            for window in [at, at + 2048] {
                assert!(d.memory.open_window(window, 1024, Access::ReadWrite));
            }
            let ends = run(&d, &text, at);
            assert_eq!(ends, [Err(FaultKind::IllegalAddress); 2], "{name}: {access}");
            assert!(host.untouched(), "{name}: {access}");
            // It is this that made the fault.
            assert!(d.memory.open_window(at + 1024, 1024, Access::ReadWrite));
            assert_eq!(run(&d, &text, at), [Ok(()); 2], "{name}: {access}");
            for window in [at, at + 1024, at + 2048] {
                assert!(d.memory.close_window(window));
            }
        }
    }
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

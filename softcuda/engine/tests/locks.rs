//! Spin locks among the threads of one warp: in shared memory, in functions that are not inlined, and as programs write them.

mod common;

use common::{Arg, Device};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Runs a kernel whose threads each add `tid + 1` to a sum that a lock guards; the sums are at `[out]`, one a block.
fn check(text: &str) {
    let d = Device::new();
    let m = d.load(&format!("{HEAD}{text}"));
    for (grid, block) in [(1u32, 32u32), (1, 7), (2, 50)] {
        let out = d.put(&vec![0u32; grid as usize]);
        d.run(&m.kernels()[0], [grid, 1, 1], [block, 1, 1], &[Arg::U64(out)]).unwrap();
        let want = vec![block * (block + 1) / 2; grid as usize];
        assert_eq!(d.get::<u32>(out, grid as usize), want, "{grid} blocks of {block} threads");
    }
}

/// The lock and the sum in shared memory, made 0 by the first thread, and the sum stored by it at the end.
fn kernel(critical: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 out) {{ .shared .align 4 .b8 s[8]; .reg .b64 o, w, g; .reg .b32 t, n, r, v, a; .reg .pred first, p, done;\n\
         ld.param.u64 o, [out]; mov.u32 t, %tid.x; setp.eq.u32 first, t, 0; mov.u32 r, 0; mov.u32 a, s; mov.u64 g, s; cvta.shared.u64 g, g;\n\
         @first st.shared.u32 [s], r; @first st.shared.u32 [s+4], r; bar.sync 0; add.u32 n, t, 1;\n\
         {critical}\n\
         bar.sync 0; mov.u32 r, %ctaid.x; mul.wide.u32 w, r, 4; add.u64 o, o, w; ld.shared.u32 v, [s+4]; @first st.global.u32 [o], v; ret; }}\n"
    )
}

/// `while (atomicCAS(lock, 0, 1)); sum += n; lock = 0;`
#[test]
fn in_shared_memory() {
    check(&kernel(
        "L: atom.shared.cas.b32 r, [s], 0, 1; setp.ne.u32 p, r, 0; @p bra L;\n\
         ld.shared.u32 v, [s+4]; add.u32 v, v, n; st.shared.u32 [s+4], v; membar.cta; atom.shared.exch.b32 r, [s], 0;",
    ));
}

/// `for (done = false; !done;) if (atomicExch(lock, 1) == 0) { sum += n; lock = 0 by a volatile store; done = true; }`
#[test]
fn with_the_critical_part_in_the_loop() {
    check(&kernel(
        "L: atom.shared.exch.b32 r, [s], 1; setp.ne.u32 p, r, 0; @p bra AGAIN;\n\
         ld.volatile.shared.u32 v, [s+4]; add.u32 v, v, n; st.volatile.shared.u32 [s+4], v; membar.cta; mov.u32 v, 0; st.volatile.shared.u32 [s], v; bra OUT;\n\
         AGAIN: bra L;\nOUT:",
    ));
}

/// The lock is taken and given back in functions of their own, by a generic address, as `noinline` functions of a lock class are.
#[test]
fn in_functions() {
    let functions = ".func lock(.param .b64 at) { .reg .b64 a; .reg .b32 r; .reg .pred p; ld.param.u64 a, [at];\n\
           L: atom.cas.b32 r, [a], 0, 1; setp.ne.u32 p, r, 0; @p bra L; membar.gl; ret; }\n\
         .func unlock(.param .b64 at) { .reg .b64 a; .reg .b32 r; ld.param.u64 a, [at]; membar.gl; atom.exch.b32 r, [a], 0; ret; }\n\
         .func add(.param .b64 at, .param .b32 n) { .reg .b64 a; .reg .b32 r, v; ld.param.u64 a, [at]; ld.param.u32 r, [n]; ld.u32 v, [a+4]; add.u32 v, v, r; st.u32 [a+4], v; ret; }\n";
    let call = "{ .param .b64 at; .param .b32 by; st.param.b64 [at], g; call lock, (at); st.param.b64 [at], g; st.param.b32 [by], n; call add, (at, by);\n\
         st.param.b64 [at], g; call unlock, (at); }";
    check(&format!("{functions}{}", kernel(call)));
}

/// The whole of it in one function, which a part of the lanes calls from one place, and the others from another.
#[test]
fn in_one_function_called_from_two_places() {
    let functions = ".func locked_add(.param .b64 at, .param .b32 n) { .reg .b64 a; .reg .b32 r, v, m; .reg .pred p; ld.param.u64 a, [at]; ld.param.u32 m, [n];\n\
         L: atom.acquire.cta.cas.b32 r, [a], 0, 1; setp.ne.u32 p, r, 0; @p bra L;\n\
         ld.u32 v, [a+4]; add.u32 v, v, m; st.u32 [a+4], v; membar.cta; st.release.cta.u32 [a], 0; ret; }\n";
    let call = "{ .param .b64 at; .param .b32 by; and.b32 r, t, 1; setp.eq.u32 p, r, 1; @p bra ODD;\n\
         st.param.b64 [at], g; st.param.b32 [by], n; call locked_add, (at, by); bra JOIN;\n\
         ODD: st.param.b64 [at], g; st.param.b32 [by], n; call locked_add, (at, by);\nJOIN: }";
    check(&format!("{functions}{}", kernel(call)));
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

#[test]
fn again_with_vectors() {
    common::again_with_vectors();
}

//! Threads that go through memory in a loop without waiting: the groups of a block take turns in it.

mod common;

use common::{Arg, Device};

/// Two loops one behind the other, of `(i / every) % 5 + 1` rounds for thread `i`, with values of several kinds alive over them:
/// `o[i + k·n] = acc`, where `acc` begins as `i²` and becomes `3·acc + a[i + k·n]`; then `p[i + k·n] = o[i + k·n] + k`, or `- k`
/// where `i` is odd.
const STRIDE: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry stride(.param .u64 a, .param .u64 o, .param .u64 p, .param .u32 n, .param .u32 every)
{
    .reg .pred %q<4>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [o];
    ld.param.u64 %rd3, [p];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [every];
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    div.u32 %r7, %r6, %r2;
    rem.u32 %r7, %r7, 5;
    add.u32 %r7, %r7, 1;
    mul.lo.u32 %r8, %r6, %r6;
    and.b32 %r9, %r6, 1;
    setp.eq.u32 %q3, %r9, 1;
    mov.u32 %r10, 0;
    mov.u32 %r11, %r6;
LOOP1:
    mul.wide.u32 %rd4, %r11, 4;
    add.s64 %rd5, %rd1, %rd4;
    ld.global.u32 %r12, [%rd5];
    mad.lo.u32 %r8, %r8, 3, %r12;
    add.s64 %rd6, %rd2, %rd4;
    st.global.u32 [%rd6], %r8;
    add.u32 %r11, %r11, %r1;
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %q1, %r10, %r7;
    @%q1 bra LOOP1;
    mov.u32 %r10, 0;
    mov.u32 %r11, %r6;
LOOP2:
    mul.wide.u32 %rd4, %r11, 4;
    add.s64 %rd6, %rd2, %rd4;
    ld.global.u32 %r12, [%rd6];
    add.u32 %r13, %r12, %r10;
    sub.u32 %r14, %r12, %r10;
    selp.b32 %r13, %r14, %r13, %q3;
    add.s64 %rd7, %rd3, %rd4;
    st.global.u32 [%rd7], %r13;
    add.u32 %r11, %r11, %r1;
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %q2, %r10, %r7;
    @%q2 bra LOOP2;
    ret;
}";

#[test]
fn loops_of_different_length() {
    let d = Device::new();
    let m = d.load(STRIDE);
    for (block, every) in
        [(256, 16), (256, 7), (1024, 64), (100, 8), (48, 16), (8, 3), (24, 8), (40, 1), (32, 32)]
    {
        let n = 2 * block;
        let a: Vec<u32> = (0..5 * n).map(|i: u32| i.wrapping_mul(2_654_435_761)).collect();
        let (mut o, mut p) = (vec![7u32; a.len()], vec![9u32; a.len()]);
        let (pa, po, pp) = (d.put(&a), d.put(&o), d.put(&p));
        let args = [Arg::U64(pa), Arg::U64(po), Arg::U64(pp), Arg::U32(n), Arg::U32(every)];
        d.run(&m.kernels()[0], [2, 1, 1], [block, 1, 1], &args).unwrap();
        for i in 0..n {
            let mut acc = i.wrapping_mul(i);
            for k in 0..i / every % 5 + 1 {
                let at = (i + k * n) as usize;
                acc = acc.wrapping_mul(3).wrapping_add(a[at]);
                o[at] = acc;
                p[at] = if i % 2 == 1 { acc.wrapping_sub(k) } else { acc.wrapping_add(k) };
            }
        }
        assert_eq!(d.get::<u32>(po, o.len()), o, "block {block}, every {every}");
        assert_eq!(d.get::<u32>(pp, p.len()), p, "block {block}, every {every}");
        assert!([pa, po, pp].into_iter().all(|a| d.memory.free(a)));
    }
}

/// Each thread writes the time of each of four rounds: `o[i + 256·k]`.
const TIMES: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry times(.param .u64 o)
{
    .reg .pred %q;
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [o];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 0;
LOOP:
    mul.wide.u32 %rd2, %r1, 8;
    add.s64 %rd3, %rd1, %rd2;
    mov.u64 %rd4, %clock64;
    st.global.u64 [%rd3], %rd4;
    add.u32 %r1, %r1, 256;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %q, %r2, 4;
    @%q bra LOOP;
    ret;
}";

#[test]
fn groups_take_turns() {
    if std::env::var_os(common::CODEGEN).is_some_and(|v| v != "vector") {
        return; // threads run one after the other there
    }
    let d = Device::new();
    let m = d.load(TIMES);
    let o = d.put(&[0u64; 1024]);
    d.run(&m.kernels()[0], [1, 1, 1], [256, 1, 1], &[Arg::U64(o)]).unwrap();
    let got = d.get::<u64>(o, 1024);
    let rounds: Vec<&[u64]> = got.chunks(256).collect();
    for pair in rounds.windows(2) {
        assert!(
            pair[0].iter().max() <= pair[1].iter().min(),
            "a round began before the one before it was over"
        );
    }
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

//! Kernels with barriers whose groups need no stacks: what each group keeps over a barrier, and what happens when its lanes part and
//! must wait for each other after all. Both generators must give what a plain loop over the threads gives.

mod common;

use common::{Arg, Device};

/// Rounds of "write my value, barrier, read my neighbour's, barrier", with registers of all classes alive over both barriers:
/// `x ← 3·neighbour(x) + a + b + c + d` where a is a byte, b 16 bits, c a double, d 64 bits, and p a predicate that adds 1.
/// Warp w leaves after `rounds + w` rounds if `leave` is 1, and then nobody's neighbour is in a warp that has left.
const RING: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry ring(.param .u64 out, .param .u32 rounds, .param .u32 leave)
{
    .reg .pred %p, %q, %e;
    .reg .b16 %a, %b;
    .reg .b32 %t, %n, %r, %l, %x, %y, %w, %s, %i, %k, %f;
    .reg .b64 %d, %o, %u;
    .reg .f64 %c;
    .shared .align 4 .b8 buffer[4096];
    ld.param.u64 %o, [out];
    ld.param.u32 %r, [rounds];
    ld.param.u32 %l, [leave];
    mov.u32 %t, %tid.x;
    mov.u32 %n, %ntid.x;
    shr.u32 %w, %t, 5;
    mad.lo.u32 %r, %l, %w, %r;
    mul.lo.u32 %x, %t, 7;
    and.b32 %y, %x, 127;
    cvt.u8.u32 %a, %y;
    mul.lo.u32 %y, %t, 321;
    cvt.u16.u32 %b, %y;
    cvt.rn.f64.u32 %c, %t;
    cvt.u64.u32 %d, %t;
    mul.lo.u64 %d, %d, 4294967297;
    and.b32 %y, %t, 5;
    setp.eq.u32 %p, %y, 4;
    // The neighbour: the next lane of the same warp.
    add.u32 %s, %t, 1;
    and.b32 %s, %s, 31;
    and.b32 %y, %t, 4294967264;
    or.b32 %s, %s, %y;
    shl.b32 %s, %s, 2;
    shl.b32 %f, %t, 2;
    mov.u32 %k, buffer;
    add.u32 %s, %s, %k;
    add.u32 %f, %f, %k;
    mov.u32 %i, 0;
LOOP:
    st.shared.u32 [%f], %x;
    bar.sync 3;
    ld.shared.u32 %y, [%s];
    mul.lo.u32 %x, %y, 3;
    cvt.u32.u8 %y, %a; add.u32 %x, %x, %y;
    cvt.u32.u16 %y, %b; add.u32 %x, %x, %y;
    cvt.rzi.u32.f64 %y, %c; add.u32 %x, %x, %y;
    shr.u64 %u, %d, 32; cvt.u32.u64 %y, %u; add.u32 %x, %x, %y;
    @%p add.u32 %x, %x, 1;
    bar.sync 3;
    add.u32 %i, %i, 1;
    setp.lt.u32 %q, %i, %r;
    @%q bra LOOP;
    mul.wide.u32 %u, %t, 4;
    add.s64 %o, %o, %u;
    st.global.u32 [%o], %x;
    ret;
}";

fn ring(threads: u32, rounds: u32, leave: u32) -> Vec<u32> {
    let mut x: Vec<u32> = (0..threads).map(|t| t * 7).collect();
    for i in 0..rounds + threads / 32 {
        let old = x.clone();
        for t in (0..threads).filter(|t| i < rounds + leave * (t / 32)) {
            let neighbour = old[(t & !31 | (t + 1) & 31) as usize];
            let sum = ((t * 7) & 127) + ((t * 321) & 0xffff) + t + t + u32::from(t & 5 == 4);
            x[t as usize] = neighbour.wrapping_mul(3).wrapping_add(sum);
        }
    }
    x
}

#[test]
fn registers_of_every_class_outlast_barriers_and_warps_may_leave_early() {
    let d = Device::new();
    let m = d.load(RING);
    for (threads, rounds, leave) in [(32, 1, 0), (64, 5, 1), (256, 3, 1), (1024, 4, 1), (1024, 2, 0)] {
        let out = d.put(&vec![0u32; threads as usize]);
        let args = [Arg::U64(out), Arg::U32(rounds), Arg::U32(leave)];
        d.run(&m.kernels()[0], [1; 3], [threads, 1, 1], &args).unwrap();
        assert_eq!(d.get::<u32>(out, threads as usize), ring(threads, rounds, leave), "{threads} threads");
    }
}

/// Rounds of `x ← 2·x`, in one of which the lower half of one warp adds its neighbour's value first, by a shuffle behind a branch by which
/// the lanes part: in round `when` that group cannot run as one.
const PART: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry part(.param .u64 out, .param .u32 warp, .param .u32 when, .param .u32 rounds)
{
    .reg .pred %p, %q;
    .reg .b32 %t, %w, %l, %a, %b, %c, %i, %r, %s, %v, %x;
    .reg .b64 %o, %u;
    .shared .align 4 .b8 sums[4096];
    ld.param.u64 %o, [out];
    ld.param.u32 %a, [warp];
    ld.param.u32 %b, [when];
    ld.param.u32 %r, [rounds];
    mov.u32 %t, %tid.x;
    shr.u32 %w, %t, 5;
    and.b32 %l, %t, 31;
    mov.u32 %i, 0;
    mov.u32 %x, %t;
    mov.u32 %s, sums;
    shl.b32 %c, %t, 2;
    add.u32 %s, %s, %c;
LOOP:
    st.shared.u32 [%s], %x;
    bar.sync 0;
    setp.ne.u32 %p, %i, %b;
    @%p bra JOIN;
    setp.ne.u32 %p, %w, %a;
    @%p bra JOIN;
    // Lanes of one warp exchange by shuffle, the lower half by itself.
    setp.ge.u32 %p, %l, 16;
    @%p bra JOIN;
    shfl.sync.bfly.b32 %v, %x, 1, 31, 65535;
    add.u32 %x, %x, %v;
JOIN:
    ld.shared.u32 %v, [%s];
    add.u32 %x, %x, %v;
    bar.sync 0;
    add.u32 %i, %i, 1;
    setp.lt.u32 %q, %i, %r;
    @%q bra LOOP;
    mul.wide.u32 %u, %t, 4;
    add.s64 %o, %o, %u;
    st.global.u32 [%o], %x;
    ret;
}";

#[test]
fn a_group_whose_lanes_part_and_wait_goes_on_with_all_others() {
    let d = Device::new();
    let m = d.load(PART);
    let threads = 128;
    for warp in 0..=4 {
        for when in 0..4 {
            let out = d.put(&vec![0u32; threads as usize]);
            let args = [Arg::U64(out), Arg::U32(warp), Arg::U32(when), Arg::U32(4)];
            // Several blocks one after the other on the same stacks.
            d.run(&m.kernels()[0], [3, 1, 1], [threads, 1, 1], &args).unwrap();
            let mut x: Vec<u32> = (0..threads).collect();
            for i in 0..4 {
                let old = x.clone();
                for t in 0..threads {
                    let mut v = old[t as usize];
                    if i == when && t / 32 == warp && t % 32 < 16 {
                        v += old[(t ^ 1) as usize];
                    }
                    x[t as usize] = v + old[t as usize];
                }
            }
            assert_eq!(d.get::<u32>(out, threads as usize), x, "warp {warp} in round {when}");
        }
    }
}

/// All accesses of a run are tested together: the first bad one in the order of the text is told, and those that are good only by
/// wrapping, or only in part of a granule, are let through.
#[test]
fn accesses_that_are_tested_together_fault_by_themselves() {
    let d = Device::new();
    let text = |body: &str| {
        format!(
            ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {{\n\
             .reg .b32 %t, %x, %y, %s; .reg .b64 %a, %b, %u; .shared .align 4 .b8 s[256];\n\
             ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; mov.u32 %t, %tid.x; mul.wide.u32 %u, %t, 4;\n\
             add.s64 %a, %a, %u; add.s64 %b, %b, %u; mov.u32 %s, s;\n{body}\nret; }}"
        )
    };
    let good = d.put(&(0..64u32).collect::<Vec<_>>());
    let run = |body: &str, a: u64, b: u64| {
        let m = d.load(&text(body));
        d.run(&m.kernels()[0], [1; 3], [32, 1, 1], &[Arg::U64(a), Arg::U64(b)])
    };
    let both =
        "ld.global.u32 %x, [%a];\nld.global.u32 %y, [%b];\nadd.u32 %x, %x, %y;\nst.global.u32 [%a+128], %x;";
    run(both, good, good).unwrap();
    assert_eq!(d.get::<u32>(good + 128, 32), (0..32u32).map(|t| 2 * t).collect::<Vec<_>>());
    // Both are bad, and the first one is told; then only the second one is, then only the first.
    for (a, b, line) in [(64, 128, 8), (good, 128, 9), (good + (1 << 40), good, 8)] {
        let f = run(both, a, b).unwrap_err();
        assert!(f.message.contains(&format!("PTX line {line}")), "{}", f.message);
        assert_eq!(f.kind, softcuda_engine::FaultKind::IllegalAddress);
    }
    let f = run(both, good, good + 2).unwrap_err();
    assert_eq!(f.kind, softcuda_engine::FaultKind::MisalignedAddress);
    // A shared register below 0 whose offsets are inside.
    let below = "add.u32 %s, %s, -64;\nst.shared.u32 [%s+64], 5;\nst.shared.u32 [%s+68], 6;\nld.shared.u32 %x, [%s+64];\nst.global.u32 [%a], %x;";
    run(below, good, good).unwrap();
    assert_eq!(d.get::<u32>(good, 32), [5; 32]);
    for offsets in [(0, 64), (64, 320), (64, 66)] {
        let body = format!(
            "add.u32 %s, %s, -64;\nst.shared.u32 [%s+{}], 5;\nst.shared.u32 [%s+{}], 6;",
            offsets.0, offsets.1
        );
        run(&body, good, good).unwrap_err();
    }
    // Registered host memory that fills no granule.
    let host: Vec<u32> = (100..132).collect();
    assert!(d.memory.register_host(host.as_ptr() as u64, 128));
    run("ld.global.u32 %x, [%b];\nst.global.u32 [%a], %x;", good, host.as_ptr() as u64).unwrap();
    assert_eq!(d.get::<u32>(good, 32), host);
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

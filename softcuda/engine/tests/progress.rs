//! Divergence and forward progress: who waits for whom, and that everybody gets on.

mod common;

use common::{Arg, Device, pack};
use softcuda_engine::{FaultKind, Launch};
use std::time::Duration;

fn ptx(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u32 pn) {{\n\
         .reg .pred p<9>; .reg .b32 r<40>; .reg .b64 q<20>;\n\
         ld.param.u64 q0, [pa]; ld.param.u64 q1, [pb]; ld.param.u32 r0, [pn];\n\
         mov.u32 r1, %tid.x; mov.u32 r2, %ctaid.x; mov.u32 r3, %ntid.x; mad.lo.u32 r4, r2, r3, r1;\n\
         mul.wide.u32 q2, r4, 4; add.u64 q3, q1, q2; // q3: this thread's place in b\n{body}\nret;\n}}\n"
    )
}

/// Runs one kernel over `n` words of results.
fn run(d: &Device, body: &str, a: u64, grid: u32, block: u32, n: u32) -> Vec<u32> {
    let m = d.load(&ptx(body));
    let b = d.put(&vec![0u32; (grid * block) as usize]);
    let args = [Arg::U64(a), Arg::U64(b), Arg::U32(n)];
    d.run(&m.kernels()[0], [grid, 1, 1], [block, 1, 1], &args).unwrap();
    d.get(b, (grid * block) as usize)
}

#[test]
fn a_lock_among_all_threads() {
    let d = Device::new();
    let a = d.put(&[0u32; 4]);
    let body = "
L:  atom.global.cas.b32 r10, [q0], 0, 1;
    setp.ne.s32 p0, r10, 0;
    @p0 bra L;
    ld.global.u32 r11, [q0+4]; add.u32 r11, r11, 1; st.global.u32 [q0+4], r11;
    membar.gl;
    atom.global.exch.b32 r10, [q0], 0;";
    run(&d, body, a, 20, 200, 0);
    assert_eq!(d.get::<u32>(a, 2), [0, 4000]);
}

/// Each block waits for the one before it, as scans with look-back do.
#[test]
fn blocks_that_wait_for_the_block_before() {
    let d = Device::new();
    let a = d.put(&[0u32; 4]);
    let body = "
    setp.ne.u32 p0, r1, 0;
    @p0 bra DONE;
L:  ld.acquire.gpu.global.u32 r10, [q0];
    setp.ne.u32 p1, r10, r2;
    @p1 bra L;
    add.u32 r10, r10, 1;
    st.release.gpu.global.u32 [q0], r10;
DONE:
    bar.sync 0;";
    run(&d, body, a, 300, 64, 0);
    assert_eq!(d.get::<u32>(a, 1), [300]);
}

/// Lane 0 spins on a flag that lane 31 sets; then all shuffle.
#[test]
fn a_lane_waits_for_a_later_lane() {
    let d = Device::new();
    let a = d.put(&[0u32; 1]);
    let body = "
    setp.eq.u32 p0, r1, 0; setp.eq.u32 p1, r1, 31;
    @!p0 bra OTHER;
L:  ld.volatile.global.u32 r10, [q0]; setp.eq.u32 p2, r10, 0; @p2 bra L;
    bra JOIN;
OTHER:
    @p1 st.volatile.global.u32 [q0], 7;
JOIN:
    ld.volatile.global.u32 r11, [q0];
    add.u32 r11, r11, r1;
    shfl.sync.bfly.b32 r12|p3, r11, 1, 31, -1;
    st.global.u32 [q3], r12;";
    let out = run(&d, body, a, 1, 32, 0);
    // Lanes that came early may have read 0, but never something else.
    assert!(out.iter().enumerate().all(|(i, v)| *v == (i as u32 ^ 1) || *v == 7 + (i as u32 ^ 1)));
    assert_eq!(out[1], 7);
}

/// One lane of a warp, in a loop that the others are not in, waits for what another warp does.
#[test]
fn a_lane_waits_for_another_warp() {
    let d = Device::new();
    let body = "
    .shared .u32 flag;
    setp.eq.u32 p0, r1, 0; @p0 st.shared.u32 [flag], 0; bar.sync 0;
    setp.eq.u32 p1, r1, 5;
    @!p1 bra OTHER;
L:  ld.volatile.shared.u32 r10, [flag]; setp.eq.u32 p2, r10, 0; @p2 bra L;
    bra JOIN;
OTHER:
    setp.ne.u32 p3, r1, 70;
    @p3 bra JOIN;
    st.volatile.shared.u32 [flag], 9;
JOIN:
    bar.warp.sync -1;
    ld.volatile.shared.u32 r11, [flag];
    selp.u32 r12, 9, 1, p1; @p1 mov.u32 r12, r10;
    shfl.sync.idx.b32 r12, r12, 5, 31, -1;
    bar.sync 0;
    st.global.u32 [q3], r12;";
    let out = run(&d, body, 0, 3, 96, 0);
    for (i, v) in out.iter().enumerate() {
        assert_eq!(*v, if i % 96 < 32 { 9 } else { 1 }, "thread {i}");
    }
}

/// A warp that is two rows of a block 16 wide: shuffles, votes and barriers go by lanes, addresses by rows.
#[test]
fn blocks_of_sixteen_columns() {
    let d = Device::new();
    let body = "
    mov.u32 r20, %tid.y; mad.lo.u32 r21, r20, 16, r1;
    mul.wide.u32 q4, r21, 4; add.u64 q5, q1, q4;
    mov.u32 r22, %laneid; mad.lo.u32 r10, r20, 100, r1;
    shfl.sync.bfly.b32 r11, r10, 16, 31, -1;
    setp.eq.u32 p0, r1, 3; vote.sync.ballot.b32 r12, p0, -1;
    mov.u32 r13, 0; mov.u32 r14, 0;
L:  add.u32 r14, r14, r20; bar.sync 0;
    add.u32 r13, r13, 1; setp.lt.u32 p1, r13, 4; @p1 bra L;
    setp.eq.u32 p2, r12, 0x00080008; selp.u32 r15, 100000, 0, p2;
    setp.ne.u32 p3, r20, 1; @p3 bra OUT;
    shfl.sync.down.b32 r11, r10, 1, 0x101f, 0xffff0000;
OUT:
    add.u32 r15, r15, r11; mad.lo.u32 r15, r14, 1000000, r15;
    st.global.u32 [q5], r15;";
    let m = d.load(&ptx(body));
    let b = d.put(&[0u32; 64]);
    d.run(&m.kernels()[0], [1; 3], [16, 4, 1], &[Arg::U64(0), Arg::U64(b), Arg::U32(0)]).unwrap();
    for (t, v) in d.get::<u32>(b, 64).into_iter().enumerate() {
        let (x, y) = (t as u32 % 16, t as u32 / 16);
        let shuffled = if y == 1 { 100 + if x < 15 { x + 1 } else { x } } else { (y ^ 1) * 100 + x };
        assert_eq!(v, 4 * y * 1_000_000 + 100_000 + shuffled, "thread {x},{y}");
    }
}

/// Votes and shuffles of those lanes only that take a branch, whose members differ from round to round.
#[test]
fn votes_of_the_lanes_of_a_branch() {
    let d = Device::new();
    let body = "
    mov.u32 r10, 0; mov.u32 r11, 0;
L:  shr.u32 r12, r1, r10; and.b32 r12, r12, 1; setp.eq.u32 p0, r12, 1;
    vote.sync.ballot.b32 r13, p0, -1;
    @!p0 bra ZERO;
    setp.gt.u32 p1, r1, 20; vote.sync.any.pred p2, p1, r13; vote.sync.all.pred p3, p1, r13;
    bra JOIN;
ZERO:
    not.b32 r14, r13;
    setp.gt.u32 p1, r1, 20; vote.sync.any.pred p2, p1, r14; vote.sync.all.pred p3, p1, r14;
JOIN:
    shl.b32 r11, r11, 2; @p2 or.b32 r11, r11, 1; @p3 or.b32 r11, r11, 2;
    add.u32 r10, r10, 1; setp.lt.u32 p4, r10, 5; @p4 bra L;
    st.global.u32 [q3], r11;";
    let out = run(&d, body, 0, 1, 32, 0);
    for lane in 0..32u32 {
        let want = (0..5).fold(0, |sum, bit| {
            let members: Vec<u32> = (0..32).filter(|l| l >> bit & 1 == lane >> bit & 1).collect();
            let (any, all) = (members.iter().any(|l| *l > 20), members.iter().all(|l| *l > 20));
            sum << 2 | u32::from(any) | u32::from(all) << 1
        });
        assert_eq!(out[lane as usize], want, "lane {lane}");
    }
}

/// A barrier behind a test that differs within the block and not within a warp, with the others at another one.
#[test]
fn barriers_behind_tests_of_whole_warps() {
    let d = Device::new();
    let body = "
    .shared .u32 cells[4];
    shr.u32 r10, r1, 6; mul.wide.u32 q4, r10, 4; mov.u64 q5, cells; add.u64 q4, q4, q5; cvt.u32.u64 r11, q4;
    and.b32 r12, r1, 63; setp.eq.u32 p0, r12, 0; @p0 st.shared.u32 [r11], 0; bar.sync 0;
    setp.ge.u32 p1, r1, 64;
    @p1 bra HIGH;
    red.shared.add.u32 [r11], 1; bar.sync 1, 64; ld.shared.u32 r13, [r11]; bar.sync 1, 64; red.shared.add.u32 [r11], 1;
    bra JOIN;
HIGH:
    red.shared.add.u32 [r11], 3; bar.sync 2, 64; ld.shared.u32 r13, [r11]; bar.sync 2, 64;
JOIN:
    bar.sync 0; ld.shared.u32 r14, [r11]; mad.lo.u32 r14, r14, 1000, r13; st.global.u32 [q3], r14;";
    let out = run(&d, body, 0, 2, 128, 0);
    for (i, v) in out.iter().enumerate() {
        assert_eq!(*v, if i % 128 < 64 { 128 * 1000 + 64 } else { 192 * 1000 + 192 }, "thread {i}");
    }
}

#[test]
fn half_warps_shuffle_apart() {
    let d = Device::new();
    let body = "
    setp.lt.u32 p0, r1, 16;
    @p0 bra LOW;
    shfl.sync.down.b32 r10|p1, r1, 1, 31, 0xffff0000;
    shfl.sync.down.b32 r10|p1, r10, 1, 31, 0xffff0000;
    bra JOIN;
LOW:
    shfl.sync.up.b32 r10|p1, r1, 1, 0, 0xffff;
JOIN:
    vote.sync.ballot.b32 r11, p1, -1;
    st.global.u32 [q3], r10;
    @!p1 st.global.u32 [q3], r11;";
    let out = run(&d, body, 0, 1, 32, 0);
    let valid = 0x7fff_fffe; // lane 0 of `up` and lane 31 of `down` have no source
    for i in 0..32u32 {
        let want = match i {
            0 | 31 => valid,
            1..16 => i - 1,
            30 => 31,
            _ => i + 2,
        };
        assert_eq!(out[i as usize], want, "lane {i}");
    }
}

/// Unequal trip counts, early exits, and a barrier in the loop of those who stay.
#[test]
fn loops_of_different_length_with_barriers() {
    let d = Device::new();
    let body = "
    setp.ge.u32 p0, r1, 90;
    @p0 bra OUT;                    // some end at once
    mov.u32 r10, 0; mov.u32 r11, 0;
L:  add.u32 r11, r11, r10; add.u32 r10, r10, 1;
    setp.le.u32 p1, r10, r1;
    @p1 bra L;                      // thread t runs t + 1 times
    mov.u32 r12, 0;
B:  bar.sync 0;
    atom.shared.add.u32 r13, [cell], 1;
    bar.sync 0;
    ld.shared.u32 r14, [cell];
    add.u32 r12, r12, 1;
    setp.lt.u32 p2, r12, 5;
    @p2 bra B;
    st.global.u32 [q3], r11;
    setp.eq.u32 p3, r1, 0;
    @p3 st.global.u32 [q3], r14;
OUT:";
    let body =
        format!(".shared .u32 cell; setp.eq.u32 p4, r1, 0; @p4 st.shared.u32 [cell], 0; bar.sync 0;\n{body}");
    let out = run(&d, &body, 0, 3, 100, 0);
    for (i, v) in out.iter().enumerate() {
        let t = i as u32 % 100;
        let want = match t {
            0 => 5 * 90,
            1..90 => t * (t + 1) / 2,
            _ => 0,
        };
        assert_eq!(*v, want, "thread {t}");
    }
}

#[test]
fn active_masks_are_of_those_who_are_there() {
    let d = Device::new();
    let body = "
    and.b32 r10, r1, 1; setp.eq.u32 p0, r10, 1;
    @p0 bra ODD;
    activemask.b32 r11;
    bra JOIN;
ODD:
    activemask.b32 r11;
JOIN:
    bar.warp.sync -1;
    activemask.b32 r12;
    xor.b32 r12, r12, r11;
    st.global.u32 [q3], r12;";
    let out = run(&d, body, 0, 1, 64, 0);
    assert!(out.iter().enumerate().all(|(i, v)| *v == if i % 2 == 0 { 0xaaaa_aaaa } else { 0x5555_5555 }));
}

/// Value uniform inside of a divergent loop, different behind it.
#[test]
fn temporal_divergence() {
    let d = Device::new();
    let body = "
    mov.u32 r10, 0;
L:  mov.u32 r11, r10;
    add.u32 r10, r10, 1;
    setp.lt.u32 p0, r10, r1;
    @p0 bra L;
    shfl.sync.idx.b32 r12, r11, 5, 31, -1;
    mad.lo.u32 r12, r12, 100, r11;
    st.global.u32 [q3], r12;";
    let out = run(&d, body, 0, 1, 32, 0);
    assert!(out.iter().enumerate().all(|(i, v)| *v == 400 + (i as u32).max(1) - 1));
}

#[test]
fn named_barriers_and_reductions() {
    let d = Device::new();
    // Warp 0 waits for warp 1 at barrier 3 of 64 threads; then all count and vote.
    let body = "
    .shared .u32 cell;
    setp.lt.u32 p0, r1, 32;
    @p0 bar.sync 3, 64;
    @p0 ld.shared.u32 r10, [cell];
    @p0 bra JOIN;
    st.shared.u32 [cell], 55;
    mov.u32 r10, 55;
    bar.arrive 3, 64;
JOIN:
    and.b32 r11, r1, 3; setp.eq.u32 p1, r11, 0;
    bar.red.popc.u32 r12, 0, p1;
    bar.red.and.pred p2, 0, p1;
    bar.red.or.pred p3, 0, !p1;
    selp.u32 r13, 1000, 0, p2; selp.u32 r14, 2000, 0, p3;
    add.u32 r12, r12, r13; add.u32 r12, r12, r14; mad.lo.u32 r12, r10, 10000, r12;
    st.global.u32 [q3], r12;";
    let out = run(&d, body, 0, 1, 64, 0);
    assert!(out.iter().all(|v| *v == 552_016), "{out:?}");
}

#[test]
fn matches_reductions_and_election() {
    let d = Device::new();
    let body = "
    rem.u32 r10, r1, 3;
    match.any.sync.b32 r11, r10, -1;
    match.all.sync.b32 r12|p0, r10, r11;
    setp.ne.u32 p1, r11, r12;
    redux.sync.add.s32 r13, r1, r11;
    redux.sync.max.u32 r14, r1, r11;
    elect.sync r15|p2, r11;
    popc.b32 r16, r11;
    mad.lo.u32 r13, r14, 1000, r13;
    @p1 mov.u32 r13, 0; @!p0 mov.u32 r13, 1;
    @p2 add.u32 r13, r13, 1000000;
    st.global.u32 [q3], r13;";
    let out = run(&d, body, 0, 1, 32, 0);
    for (i, v) in out.iter().enumerate() {
        let class: Vec<u32> = (0..32).filter(|j| j % 3 == i as u32 % 3).collect();
        let want = class.last().unwrap() * 1000
            + class.iter().sum::<u32>()
            + if class[0] == i as u32 { 1_000_000 } else { 0 };
        assert_eq!(*v, want, "lane {i}");
    }
}

/// One grid waits for a word that another grid, started later, writes.
#[test]
fn a_grid_that_waits_for_another() {
    let d = Device::new();
    let wait = d.load(&ptx(
        "L: ld.volatile.global.u32 r10, [q0]; setp.eq.u32 p0, r10, 0; @p0 bra L; st.global.u32 [q3], r10;",
    ));
    let tell = d.load(&ptx("st.volatile.global.u32 [q0], 9;"));
    let (a, b) = (d.put(&[0u32]), d.put(&vec![0u32; 64 * 40]));
    std::thread::scope(|s| {
        let (d, wait) = (&d, &wait);
        let first = s.spawn(move || {
            let args = [Arg::U64(a), Arg::U64(b), Arg::U32(0)];
            d.run(&wait.kernels()[0], [40, 1, 1], [64, 1, 1], &args)
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!first.is_finished());
        let args = [Arg::U64(a), Arg::U64(b), Arg::U32(0)];
        d.run(&tell.kernels()[0], [1; 3], [1; 3], &args).unwrap();
        first.join().unwrap().unwrap();
    });
    assert!(d.get::<u32>(b, 64 * 40).iter().all(|v| *v == 9));
}

/// A kernel waits for a word that the host writes to device memory, and one to registered host memory.
/// Pairs and fours that one block writes and another one reads are never seen half old and half new, as on a card.
#[test]
fn pairs_are_read_as_they_were_written() {
    let d = Device::new();
    for (kind, registers, words) in [
        ("v2.u64", "q8,q9", "mov.u64 q8, q10; mov.u64 q9, q10;"),
        (
            "v4.u32",
            "r20,r21,r22,r23",
            "cvt.u32.u64 r20, q10; mov.u32 r21, r20; mov.u32 r22, r20; mov.u32 r23, r20;",
        ),
        ("v2.u32", "r20,r21", "cvt.u32.u64 r20, q10; mov.u32 r21, r20;"),
    ] {
        let a = d.put(&[0u64; 4]);
        let differ = match kind {
            "v2.u64" => "xor.b64 q11, q8, q9; setp.ne.u64 p3, q11, 0;".to_string(),
            "v2.u32" => "setp.ne.u32 p3, r20, r21;".to_string(),
            _ => "xor.b32 r24, r20, r21; xor.b32 r25, r20, r22; or.b32 r24, r24, r25; xor.b32 r25, r20, r23; or.b32 r24, r24, r25; setp.ne.u32 p3, r24, 0;"
                .to_string(),
        };
        let body = format!(
            "
    setp.ne.u32 p0, r1, 0;
    mov.u32 r10, 0;
    @p0 bra DONE;
    setp.ne.u32 p1, r2, 0;
    @p1 bra READ;
    mov.u64 q10, 0;
W:  add.u64 q10, q10, 1;
    {words}
    st.relaxed.gpu.global.{kind} [q0], {{{registers}}};
    setp.lt.u64 p2, q10, 3000000;
    @p2 bra W;
    st.release.gpu.global.u32 [q0+16], 1;
    bra DONE;
READ:
    ld.relaxed.gpu.global.{kind} {{{registers}}}, [q0];
    {differ}
    @p3 add.u32 r10, r10, 1;
    ld.acquire.gpu.global.u32 r11, [q0+16];
    setp.eq.u32 p4, r11, 0;
    @p4 bra READ;
DONE:
    st.global.u32 [q3], r10;"
        );
        let torn = run(&d, &body, a, 2, 32, 0);
        assert_eq!(torn[32], 0, "{kind}: so many reads saw two writes at once");
        let last = d.get::<u32>(a, 2);
        assert_eq!(last[0], 3_000_000, "{kind}");
    }
}

#[test]
fn a_grid_that_waits_for_the_host() {
    let d = Device::new();
    let m =
        d.load(&ptx("L: ld.volatile.u32 r10, [q0]; setp.eq.u32 p0, r10, 0; @p0 bra L; st.u32 [q1], r10;"));
    let host = [std::sync::atomic::AtomicU32::new(0), std::sync::atomic::AtomicU32::new(0)];
    let at = host.as_ptr() as u64;
    let args = [Arg::U64(at), Arg::U64(at + 4), Arg::U32(0)];
    let refused = d.run(&m.kernels()[0], [1; 3], [1; 3], &args).unwrap_err();
    assert_eq!(refused.kind, FaultKind::IllegalAddress);
    assert!(d.memory.register_host(at, 8));
    std::thread::scope(|s| {
        let (d, m) = (&d, &m);
        let run = s.spawn(move || d.run(&m.kernels()[0], [1; 3], [1; 3], &args));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!run.is_finished());
        host[0].store(3, std::sync::atomic::Ordering::SeqCst);
        run.join().unwrap().unwrap();
    });
    assert_eq!(host[1].load(std::sync::atomic::Ordering::SeqCst), 3);
}

#[test]
fn a_waiting_grid_can_be_cancelled() {
    let d = Device::new();
    let m = d.load(&ptx("L: ld.volatile.global.u32 r10, [q0]; setp.eq.u32 p0, r10, 0; @p0 bra L;"));
    let a = d.put(&[0u32]);
    std::thread::scope(|s| {
        let (d, m) = (&d, &m);
        let args = [Arg::U64(a), Arg::U64(a), Arg::U32(0)];
        let run = s.spawn(move || d.run(&m.kernels()[0], [100, 1, 1], [64, 1, 1], &args));
        std::thread::sleep(Duration::from_millis(20));
        d.engine.cancel();
        assert_eq!(run.join().unwrap().unwrap_err().kind, FaultKind::Cancelled);
    });
}

/// Loops without end that wait for nobody: uniform, with lanes apart, in a function, with a barrier in it, and in the middle of a block.
const ENDLESS: [&str; 5] = [
    "L: add.u32 r10, r10, r1; bra L;",
    "and.b32 r9, r1, 1; setp.eq.u32 p0, r9, 0; @p0 bra D; L: add.u32 r10, r10, r1; st.global.u32 [q3], r10; bra L; D:",
    "{ .reg .b32 x; call (x), forever, (r1); mov.u32 r10, x; }",
    "L: bar.sync 0; add.u32 r10, r10, 1; bra L;",
    "bar.sync 0; setp.ne.u32 p0, r1, 33; @p0 bra D; L: add.u32 r10, r10, r1; bra L; D: bar.sync 0;",
];

#[test]
fn a_grid_that_never_ends_and_never_waits_can_be_cancelled() {
    const FOREVER: &str =
        ".func (.reg .b32 y) forever(.reg .b32 x) { L: add.u32 y, y, x; bra L; }\n.visible .entry";
    let d = Device::new();
    for body in ENDLESS {
        let m = d.load(&ptx(body).replace(".visible .entry", FOREVER));
        let out = d.put(&[0u32; 128]);
        std::thread::scope(|s| {
            let (d, m) = (&d, &m);
            let args = [Arg::U64(out), Arg::U64(out), Arg::U32(0)];
            let run = s.spawn(move || d.run(&m.kernels()[0], [2, 1, 1], [64, 1, 1], &args));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!run.is_finished(), "{body}");
            d.engine.cancel();
            assert_eq!(run.join().unwrap().unwrap_err().kind, FaultKind::Cancelled, "{body}");
        });
    }
}

#[test]
fn of_two_owners_grids_one_is_cancelled_and_the_other_goes_on() {
    let d = Device::new();
    let m =
        d.load(&ptx("L: ld.global.u32 r10, [q0]; add.u32 r11, r11, 1; setp.eq.u32 p0, r10, 0; @p0 bra L;"));
    let stays = d.load(&ptx(
        "L: ld.volatile.global.u32 r10, [q0]; setp.eq.u32 p0, r10, 0; @p0 bra L; st.global.u32 [q3], r10;",
    ));
    let (a, flag, out) = (d.put(&[0u32]), d.put(&[0u32]), d.put(&[0u32; 32]));
    let launch = |m: &softcuda_engine::Loaded, word: u64, owner: u64| Launch {
        grid: [1; 3],
        block: [32, 1, 1],
        params: pack(&m.kernels()[0], &[Arg::U64(word), Arg::U64(out), Arg::U32(0)]),
        owner,
        ..Launch::default()
    };
    let (first, second) = (launch(&m, a, 1), launch(&stays, flag, 2));
    std::thread::scope(|s| {
        let (d, m, stays) = (&d, &m, &stays);
        let one = s.spawn(move || d.engine.run(&m.kernels()[0], &first));
        let two = s.spawn(move || d.engine.run(&stays.kernels()[0], &second));
        std::thread::sleep(Duration::from_millis(20));
        d.engine.cancel_of(1);
        assert_eq!(one.join().unwrap().unwrap_err().kind, FaultKind::Cancelled);
        assert!(!two.is_finished());
        assert!(d.memory.write(flag, &7u32.to_le_bytes()));
        two.join().unwrap().unwrap();
    });
    assert_eq!(d.get::<u32>(out, 32), [7; 32]);
}

fn fault(body: &str, block: u32) -> (FaultKind, String) {
    let d = Device::new();
    let m = d.load(&ptx(body));
    let a = d.put(&[0u32; 64]);
    let args = [Arg::U64(a), Arg::U64(a), Arg::U32(0)];
    let f = d.run(&m.kernels()[0], [3, 1, 1], [block, 1, 1], &args).unwrap_err();
    // The engine goes on after a fault.
    let ok = d.load(&ptx("st.global.u32 [q0], 1;"));
    d.run(&ok.kernels()[0], [3, 1, 1], [32, 1, 1], &args).unwrap();
    (f.kind, f.message)
}

#[test]
fn faults_are_told_apart() {
    use FaultKind::*;
    let (kind, message) = fault("st.global.u32 [q0+0x10000000], 1;", 32);
    assert_eq!(kind, IllegalAddress);
    assert!(message.contains("kernel k, block (") && message.contains("PTX line 9"), "{message}");
    assert_eq!(fault("ld.global.u32 r9, [q0+2]; st.global.u32 [q0], r9;", 32).0, MisalignedAddress);
    assert_eq!(
        fault("ld.global.v4.u32 {r9, r8, r7, r6}, [q0+8]; st.global.u32 [q0], r9;", 32).0,
        MisalignedAddress
    );
    assert_eq!(fault("mov.u64 q9, 16; ld.u8 r9, [q9]; st.global.u32 [q0], r9;", 32).0, IllegalAddress);
    assert_eq!(fault("mov.u64 q9, -8; st.u64 [q9], q9;", 32).0, IllegalAddress);
    assert_eq!(fault(".shared .u32 s[4]; mov.u32 r9, 64; st.shared.u32 [r9], r9;", 32).0, IllegalAddress);
    assert_eq!(fault(".shared .u32 s[4]; st.shared.u32 [s+2], r1;", 32).0, MisalignedAddress);
    assert_eq!(fault("bar.sync 0; setp.eq.u32 p0, r1, 5; @p0 trap;", 32).0, Trap);
    assert_eq!(fault("setp.eq.u32 p0, r1, 5; @p0 bar.sync 1, 64;", 32).0, LaunchTimeout);
    let calls = "{ .param .b32 x; .reg .b64 f; mov.u64 f, 1234; proto: .callprototype _ (.param .b32 _); \
                 st.param.b32 [x], r1; call f, (x), proto; }";
    assert_eq!(fault(calls, 32).0, IllegalInstruction);
}

/// Deep recursion is a fault, not a crash.
#[test]
fn endless_recursion_is_a_fault() {
    let d = Device::new();
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
        .func (.param .b32 r) f(.param .b32 n) { .reg .b32 a; ld.param.b32 a, [n]; add.u32 a, a, 1;\n\
          { .param .b32 x; .param .b32 y; st.param.b32 [x], a; call (y), f, (x); ld.param.b32 a, [y]; }\n\
          st.param.b32 [r], a; ret; }\n\
        .visible .entry k(.param .u64 p) { .reg .b32 a; { .param .b32 x; .param .b32 y; st.param.b32 [x], 1;\n\
          call (y), f, (x); ld.param.b32 a, [y]; } ret; }";
    let m = d.load(text);
    let f = d.run(&m.kernels()[0], [4, 1, 1], [32, 1, 1], &[Arg::U64(0)]).unwrap_err();
    assert_eq!(f.kind, FaultKind::IllegalAddress);
    assert!(f.message.contains("stack overflow"), "{}", f.message);
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let d = Device::new();
    let m = d.load(&ptx(""));
    let k = &m.kernels()[0];
    let try_it = |grid, block, cooperative, params: Vec<u8>| {
        let launch = Launch { grid, block, dynamic_shared: 0, params, cooperative, ..Launch::default() };
        d.engine.run(k, &launch).map_err(|f| f.kind)
    };
    let p = pack(k, &[Arg::U64(0), Arg::U64(0), Arg::U32(0)]);
    assert_eq!(try_it([1; 3], [1025, 1, 1], false, p.clone()), Err(FaultKind::InvalidLaunch));
    assert_eq!(try_it([1; 3], [0, 1, 1], false, p.clone()), Err(FaultKind::InvalidLaunch));
    assert_eq!(try_it([0, 1, 1], [1; 3], false, p.clone()), Err(FaultKind::InvalidLaunch));
    assert_eq!(try_it([1; 3], [1; 3], false, p[..8].to_vec()), Err(FaultKind::InvalidLaunch));
    let most = d.engine.max_resident_blocks(k, 1024, 0);
    assert_eq!(try_it([most + 1, 1, 1], [1024, 1, 1], true, p.clone()), Err(FaultKind::CooperativeTooLarge));
    assert_eq!(try_it([most, 1, 1], [1024, 1, 1], true, p), Ok(()));
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

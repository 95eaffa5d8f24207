//! `barrier` without `.aligned`: lanes of one warp come to it by different ways, and every thread counts for itself.

use crate::common::{Arg, Device};

fn run(body: &str, block: u32) -> Vec<u32> {
    let d = Device::new();
    let m = d.load(&format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 po) {{\n\
         .shared .align 4 .b32 s[256]; .reg .b64 o, w; .reg .b32 t, l, a, i, v, x, y, z; .reg .pred p, q, r, e;\n\
         ld.param.u64 o, [po]; mov.u32 t, %tid.x; and.b32 l, t, 31; mul.wide.u32 w, t, 4; add.u64 o, o, w; mov.u32 a, s; mad.lo.u32 a, t, 4, a;\n\
         and.b32 x, t, 1; setp.eq.u32 e, x, 0;\n{body}\nret; }}"
    ));
    let o = d.put(&vec![0u32; block as usize]);
    d.run(&m.kernels()[0], [1; 3], [block, 1, 1], &[Arg::U64(o)]).unwrap();
    d.get(o, block as usize)
}

/// Even lanes vote at one place of the program, odd ones at another: it is the same barrier, and all get the same answer.
#[test]
fn votes_of_lanes_that_come_by_different_ways() {
    for form in ["barrier.cta.red", "barrier.red"] {
        let body = format!(
            "rem.u32 x, t, 3; setp.eq.u32 p, x, 0; setp.lt.u32 q, t, 96; setp.gt.u32 r, t, 200; @e bra EVEN;\n\
             {form}.popc.u32 v, 1, p; {form}.and.pred q, 1, q; {form}.or.pred r, 1, r; bra JOIN;\n\
             EVEN: {form}.popc.u32 v, 1, p; {form}.and.pred q, 1, q; {form}.or.pred r, 1, r;\n\
             JOIN: selp.u32 x, 1000, 0, q; selp.u32 y, 2000, 0, r; add.u32 v, v, x; add.u32 v, v, y; st.global.u32 [o], v;"
        );
        for block in [32u32, 64, 96, 128, 256] {
            let want =
                block.div_ceil(3) + if block <= 96 { 1000 } else { 0 } + if block > 201 { 2000 } else { 0 };
            assert_eq!(run(&body, block), vec![want; block as usize], "{form}, {block} threads");
        }
    }
}

/// The same with a count: barrier 5 is for the first 64 threads.
#[test]
fn votes_of_a_part_of_the_block() {
    let body = "setp.ge.u32 q, t, 64; mov.u32 v, 7; @q bra JOIN; rem.u32 x, t, 5; setp.eq.u32 p, x, 0; @e bra EVEN;\n\
        barrier.red.popc.u32 v, 5, 64, p; bra JOIN;\nEVEN: barrier.red.popc.u32 v, 5, 64, !p; JOIN: st.global.u32 [o], v;";
    // Odd multiples of five, and even numbers that are none: 6 and 25.
    let odd = (0..64).filter(|t| t % 2 == 1 && t % 5 == 0).count() as u32;
    let even = (0..64).filter(|t| t % 2 == 0 && t % 5 != 0).count() as u32;
    let want: Vec<u32> = (0..96).map(|t| if t < 64 { odd + even } else { 7 }).collect();
    assert_eq!(run(body, 96), want);
}

/// Odd lanes write and arrive, even lanes of the same warps wait and read what their neighbours wrote; ten times, with two barriers
/// in turn.
#[test]
fn arrivals_of_lanes_beside_those_that_wait() {
    for (arrive, sync) in [("barrier.arrive", "barrier.sync"), ("barrier.cta.arrive", "barrier.cta.sync")] {
        let body = format!(
            "mov.u32 i, 0; mov.u32 z, 0; LOOP: @e bra EVEN;\n\
             mad.lo.u32 v, i, 1000, t; st.shared.u32 [a], v; {arrive} 2, 128; {sync} 3, 128; bra JOIN;\n\
             EVEN: {sync} 2, 128; ld.shared.u32 v, [a+4]; add.u32 z, z, v; {arrive} 3, 128;\n\
             JOIN: add.u32 i, i, 1; setp.lt.u32 p, i, 10; @p bra LOOP; st.global.u32 [o], z;"
        );
        let want: Vec<u32> = (0..128).map(|t| if t % 2 == 0 { 45_000 + 10 * (t + 1) } else { 0 }).collect();
        assert_eq!(run(&body, 128), want, "{sync}");
    }
}

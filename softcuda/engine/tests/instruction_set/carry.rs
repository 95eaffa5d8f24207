//! Extended-precision arithmetic: chains of it against the same sums in wider integers.

use crate::common::{Arg, Device};

const THREADS: usize = 96;

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut s = seed | 1;
    move || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        // Carries run far where words are all ones or zero.
        match s >> 60 {
            0..3 => u64::MAX,
            3..6 => 0,
            _ => s.wrapping_mul(0x2545_f491_4f6c_dd1d),
        }
    }
}

/// Threads with six words each of operands at `[a]`, and `results` of them at `[o]`.
fn kernel(body: &str, results: usize) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 po) {{\n\
         .reg .b64 a, o, t, x<6>, y<8>; .reg .b32 i, u<12>, v<12>; .reg .pred p;\n\
         ld.param.u64 a, [pa]; ld.param.u64 o, [po]; mov.u32 i, %tid.x;\n\
         mul.wide.u32 t, i, 48; add.u64 a, a, t; mul.wide.u32 t, i, {}; add.u64 o, o, t;\n\
         ld.global.v2.u64 {{x0, x1}}, [a]; ld.global.v2.u64 {{x2, x3}}, [a+16]; ld.global.v2.u64 {{x4, x5}}, [a+32];\n{body}\nret;\n}}\n",
        8 * results
    )
}

fn run(body: &str, results: usize, want: impl Fn([u64; 6], usize) -> Vec<u64>) {
    let d = Device::new();
    let mut next = random(body.len() as u64);
    let operands: Vec<u64> = (0..6 * THREADS).map(|_| next()).collect();
    let (a, o) = (d.put(&operands), d.put(&vec![0u64; results * THREADS]));
    let m = d.load(&kernel(body, results));
    d.run(&m.kernels()[0], [1; 3], [THREADS as u32, 1, 1], &[Arg::U64(a), Arg::U64(o)]).unwrap();
    let got: Vec<u64> = d.get(o, results * THREADS);
    for (t, x) in operands.chunks(6).enumerate() {
        let x: [u64; 6] = x.try_into().unwrap();
        assert_eq!(got[results * t..results * (t + 1)], want(x, t), "thread {t}: {x:x?}");
    }
}

fn halves(v: u128) -> [u64; 2] {
    [v as u64, (v >> 64) as u64]
}

#[test]
fn sums_and_differences_of_three_words() {
    let body = "add.cc.u64 y0, x0, x3; addc.cc.s64 y1, x1, x4; addc.u64 y2, x2, x5;\n\
        sub.cc.u64 y3, x0, x3; subc.cc.s64 y4, x1, x4; subc.u64 y5, x2, x5;\n\
        st.global.v2.u64 [o], {y0, y1}; st.global.v2.u64 [o+16], {y2, y3}; st.global.v2.u64 [o+32], {y4, y5};";
    run(body, 6, |x, _| {
        let low = |i: usize| u128::from(x[i]) | u128::from(x[i + 1]) << 64;
        let (sum, carry) = low(0).overflowing_add(low(3));
        let (difference, borrow) = low(0).overflowing_sub(low(3));
        let top = x[2].wrapping_add(x[5]).wrapping_add(u64::from(carry));
        let rest = x[2].wrapping_sub(x[5]).wrapping_sub(u64::from(borrow));
        [halves(sum), [top, halves(difference)[0]], [halves(difference)[1], rest]].concat()
    });
}

/// 64 × 64 → 128 bits out of words of 32, as big-number libraries write it, and of words of 64 with a third one added.
#[test]
fn products() {
    let body = "mov.b64 {u0, u1}, x0; mov.b64 {u2, u3}, x1;\n\
        mul.lo.u32 v0, u0, u2; mul.hi.u32 v1, u0, u2;\n\
        mad.lo.cc.u32 v1, u0, u3, v1; madc.hi.u32 v2, u0, u3, 0;\n\
        mad.lo.cc.u32 v1, u1, u2, v1; madc.hi.cc.u32 v2, u1, u2, v2; addc.u32 v3, 0, 0;\n\
        mad.lo.cc.u32 v2, u1, u3, v2; madc.hi.u32 v3, u1, u3, v3;\n\
        mov.b64 y0, {v0, v1}; mov.b64 y1, {v2, v3}; st.global.v2.u64 [o], {y0, y1};\n\
        mad.lo.cc.u64 y2, x2, x3, x4; madc.hi.u64 y3, x2, x3, 0; st.global.v2.u64 [o+16], {y2, y3};\n\
        mad.hi.cc.s64 y4, x2, x3, x5; addc.u64 y5, x4, 0; st.global.v2.u64 [o+32], {y4, y5};";
    run(body, 6, |x, _| {
        let product = u128::from(x[0]) * u128::from(x[1]);
        let sum = (u128::from(x[2]) * u128::from(x[3])).wrapping_add(x[4].into());
        let high = (i128::from(x[2] as i64) * i128::from(x[3] as i64)) as u128 >> 64;
        let (high, carry) = (high as u64).overflowing_add(x[5]);
        [halves(product), halves(sum), [high, x[4].wrapping_add(u64::from(carry))]].concat()
    });
}

/// A chain in a loop whose length differs over the lanes, and one whose steps have a guard: the flag is each thread's own.
#[test]
fn the_flag_is_the_threads_own() {
    let body = "rem.u32 u0, i, 7; mov.u64 y0, 0; mov.u64 y1, 0; mov.u32 u1, 0;\n\
        loop: add.cc.u64 y0, y0, x0; addc.u64 y1, y1, x1; add.u32 u1, u1, 1; setp.le.u32 p, u1, u0; @p bra loop;\n\
        and.b32 u2, i, 1; setp.eq.u32 p, u2, 1; mov.u64 y2, x2;\n\
        add.cc.u64 y3, 0, 0; @p add.cc.u64 y2, x2, x3; addc.u64 y3, x4, x5;\n\
        st.global.v2.u64 [o], {y0, y1}; st.global.v2.u64 [o+16], {y2, y3};";
    run(body, 4, |x, t| {
        let step = u128::from(x[0]) | u128::from(x[1]) << 64;
        let total = step.wrapping_mul(t as u128 % 7 + 1);
        let (mut sum, mut carry) = (x[2], false);
        if t % 2 == 1 {
            (sum, carry) = x[2].overflowing_add(x[3]);
        }
        [halves(total), [sum, x[4].wrapping_add(x[5]).wrapping_add(u64::from(carry))]].concat()
    });
}

//! Atomics of 128 bits and of vectors, flushed additions, partial asynchronous copies, parameters in registers.

use crate::common::{Arg, Device};

const HEAD: &str = ".version 8.6\n.target sm_90\n.address_size 64\n";

fn run(d: &Device, params: &str, body: &str, grid: u32, block: u32, args: &[Arg]) {
    let text = format!("{HEAD}.visible .entry k({params}) {{\n{body}\n}}\n");
    d.run(&d.load(&text).kernels()[0], [grid, 1, 1], [block, 1, 1], args).unwrap();
}

/// A counter in the lower half and its complement in the upper one, moved on by compare-and-swap: never torn.
#[test]
fn compare_and_swap_of_128_bits() {
    let d = Device::new();
    let p = d.put(&[0u64, u64::MAX]);
    let body = ".reg .b128 q, n, s; .reg .b64 p, a, b, c, e, x, y; .reg .pred w, v;\n\
        ld.param.u64 p, [pp]; ld.relaxed.gpu.global.b128 q, [p];\n\
        again: mov.b128 {a, b}, q; add.u64 c, a, 1; not.b64 e, c; mov.b128 n, {c, e};\n\
        atom.acq_rel.gpu.global.cas.b128 s, [p], q, n; mov.b128 {x, y}, s;\n\
        setp.eq.u64 w, x, a; setp.eq.and.u64 w, y, b, w; mov.b128 q, s; @!w bra again; ret;";
    run(&d, ".param .u64 pp", body, 16, 32, &[Arg::U64(p)]);
    assert_eq!(d.get::<u64>(p, 2), [512, !512]);
    let o = d.put(&[0u64; 2]);
    let body = ".reg .b128 q, s; .reg .b64 p, o;\n\
        ld.param.u64 p, [pp]; ld.param.u64 o, [po]; mov.b128 q, {p, o}; atom.global.exch.b128 s, [p], q; st.relaxed.gpu.global.b128 [o], s; ret;";
    run(&d, ".param .u64 pp, .param .u64 po", body, 1, 1, &[Arg::U64(p), Arg::U64(o)]);
    assert_eq!(d.get::<u64>(p, 2), [p, o]);
    assert_eq!(d.get::<u64>(o, 2), [512, !512]);
}

#[test]
fn vectors_are_added_lane_by_lane() {
    let d = Device::new();
    let f = d.put(&[0f32; 4]);
    let h = d.put(&[half::f16::ZERO; 8]);
    let b = d.put(&[half::bf16::from_f32(2.0); 4]);
    let body = ".reg .b64 f, h, b; .reg .f32 x, y, z, w, o<4>; .reg .b32 p; .reg .b16 q;\n\
        ld.param.u64 f, [pf]; ld.param.u64 h, [ph]; ld.param.u64 b, [pb];\n\
        mov.f32 x, 0f3f800000; mov.f32 y, 0f40000000; mov.f32 z, 0f40400000; mov.f32 w, 0fbf800000;\n\
        red.global.add.v4.f32 [f], {x, y, z, w}; atom.global.v2.f32.add {o0, o1}, [f], {x, y};\n\
        mov.b32 p, 0x40003c00; red.relaxed.gpu.global.add.noftz.v4.f16x2 [h], {p, p, p, p};\n\
        mov.b16 q, 0x3f80; red.global.min.noftz.v4.bf16 [b], {q, q, q, q}; ret;";
    let args = [f, h, b].map(Arg::U64);
    run(&d, ".param .u64 pf, .param .u64 ph, .param .u64 pb", body, 4, 32, &args);
    assert_eq!(d.get::<f32>(f, 4), [256.0, 512.0, 384.0, -128.0]);
    let pairs: Vec<f32> = d.get::<half::f16>(h, 8).into_iter().map(f32::from).collect();
    assert_eq!(pairs, [128.0, 256.0].repeat(4));
    assert!(d.get::<half::bf16>(b, 4).into_iter().all(|v| f32::from(v) == 1.0));
}

/// PTX manual, `atom`: `atom.add.f32` on global memory flushes denormals, on shared memory it does not.
#[test]
fn additions_flush_denormals_in_global_memory_only() {
    let d = Device::new();
    let o = d.put(&[1u32, 0, 0, 1]);
    let body = ".shared .b32 s; .reg .b64 o, g; .reg .f32 x, r; .reg .b32 v;\n\
        ld.param.u64 o, [po]; mov.f32 x, 0f00000002; mov.b32 v, 1; st.shared.u32 [s], v;\n\
        red.global.add.f32 [o], x; red.shared.add.f32 [s], x; ld.shared.u32 v, [s]; st.global.u32 [o+4], v;\n\
        mov.u64 g, s; cvta.shared.u64 g, g; red.add.f32 [g], x; ld.shared.u32 v, [s]; st.global.u32 [o+8], v;\n\
        add.u64 g, o, 12; red.add.f32 [g], x; ret;";
    run(&d, ".param .u64 po", body, 1, 1, &[Arg::U64(o)]);
    assert_eq!(d.get::<u32>(o, 4), [0, 3, 5, 0]);
}

/// As Triton writes masked copies: a guard, and the number of bytes that are there.
#[test]
fn guarded_copies_of_a_part() {
    let d = Device::new();
    let i = d.put(&[1u32, 2, 3, 4]);
    let o = d.put(&[9u32; 12]);
    let body = ".shared .align 16 .b8 s[48]; .reg .b64 i, o; .reg .b32 v<4>, n, m; .reg .pred p, q;\n\
        ld.param.u64 i, [pi]; ld.param.u64 o, [po]; mov.u32 v0, 7; mov.u32 m, s;\n\
        st.shared.v4.b32 [s], {v0, v0, v0, v0}; st.shared.v4.b32 [s+16], {v0, v0, v0, v0}; st.shared.v4.b32 [s+32], {v0, v0, v0, v0};\n\
        setp.eq.u32 p, v0, 7; setp.ne.u32 q, v0, 7; mov.u32 n, 8;\n\
        @p cp.async.cg.shared.global [ m + 0 ], [ i + 0 ], 0x10, n;\n\
        @q cp.async.cg.shared.global [ m + 16 ], [ i + 0 ], 0x10, n;\n\
        cp.async.ca.shared.global [m+32], [i], 16, p; cp.async.commit_group; cp.async.wait_group 0x0;\n\
        ld.shared.v4.b32 {v0, v1, v2, v3}, [s]; st.global.v4.b32 [o], {v0, v1, v2, v3};\n\
        ld.shared.v4.b32 {v0, v1, v2, v3}, [s+16]; st.global.v4.b32 [o+16], {v0, v1, v2, v3};\n\
        ld.shared.v4.b32 {v0, v1, v2, v3}, [s+32]; st.global.v4.b32 [o+32], {v0, v1, v2, v3}; ret;";
    run(&d, ".param .u64 pi, .param .u64 po", body, 1, 1, &[i, o].map(Arg::U64));
    assert_eq!(d.get::<u32>(o, 12), [1, 2, 0, 0, 7, 7, 7, 7, 0, 0, 0, 0]);
}

#[test]
fn parameters_in_registers() {
    let d = Device::new();
    let o = d.put(&[0u64; 2]);
    let text = format!(
        "{HEAD}.func (.reg .u32 r, .reg .f64 x) f(.reg .u32 a, .param .u32 b, .reg .f64 y) {{\n\
           .reg .u32 t; .reg .pred p; ld.param.u32 t, [b]; setp.gt.u32 p, a, 9; add.f64 x, y, y; sub.u32 r, a, t; @p ret; add.u32 r, a, t; ret; }}\n\
         .visible .entry k(.param .u64 po) {{ .reg .b64 o; .reg .b32 a, b, r; .reg .f64 y, x; .param .b32 q;\n\
           ld.param.u64 o, [po]; mov.u32 a, 5; mov.u32 b, 3; st.param.b32 [q], b; mov.f64 y, 0d3ff8000000000000;\n\
           call (r, x), f, (a, q, y); st.global.u32 [o], r; st.global.f64 [o+8], x;\n\
           mov.u32 a, 10; call (r, x), f, (a, q, x); st.global.u32 [o+4], r; ret; }}"
    );
    d.run(&d.load(&text).kernels()[0], [1; 3], [1; 3], &[Arg::U64(o)]).unwrap();
    let got: Vec<u64> = d.get(o, 2);
    assert_eq!((got[0] as u32, (got[0] >> 32) as u32, f64::from_bits(got[1])), (8, 7, 3.0));
}

/// Additions of bf16 one by one and in pairs, of 64 threads: what they read before are all sums on the way.
#[test]
fn additions_of_bf16() {
    let d = Device::new();
    for space in ["global", "shared"] {
        let o = d.put(&[0u32; 2 + 2 * 64]);
        let at = if space == "shared" { "mov.u64 p, s;" } else { "mov.u64 p, o;" };
        let body = format!(
            ".shared .align 8 .b8 s[8]; .reg .b64 o, w, p, q; .reg .b32 t, v, x; .reg .b16 h, one; .reg .pred first;\n\
             ld.param.u64 o, [po]; {at} mov.u32 t, %tid.x; setp.eq.u32 first, t, 0; mov.u32 v, 0;\n\
             @first st.{space}.u32 [p], v; @first st.{space}.u32 [p+4], v; bar.sync 0; mul.wide.u32 w, t, 8; add.u64 q, o, w;\n\
             mov.b16 one, 0x3f80; atom.{space}.add.noftz.bf16 h, [p+2], one; cvt.u32.u16 x, h; st.global.u32 [q+8], x;\n\
             mov.b32 v, 0x40003f80; atom.{space}.add.noftz.bf16x2 x, [p+4], v; st.global.u32 [q+12], x; bar.sync 0;\n\
             @first ld.{space}.u32 v, [p]; @first st.global.u32 [o], v; @first ld.{space}.u32 v, [p+4]; @first st.global.u32 [o+4], v; ret;"
        );
        run(&d, ".param .u64 po", &body, 1, 64, &[Arg::U64(o)]);
        let bits = |v: u32| u32::from(half::bf16::from_f32(v as f32).to_bits());
        let got = d.get::<u32>(o, 130);
        assert_eq!(got[..2], [bits(64) << 16, bits(64) | bits(128) << 16], "{space}");
        let mut olds: Vec<[u32; 2]> = got[2..].chunks(2).map(|c| [c[0], c[1]]).collect();
        olds.sort_by_key(|c| c[0]);
        assert_eq!(olds.iter().map(|c| c[0]).collect::<Vec<_>>(), (0..64).map(bits).collect::<Vec<_>>());
        olds.sort_by_key(|c| c[1]);
        let pairs: Vec<u32> = (0..64).map(|n| bits(n) | bits(2 * n) << 16).collect();
        assert_eq!(olds.iter().map(|c| c[1]).collect::<Vec<_>>(), pairs);
    }
}

/// 16 bits by compare-and-swap, with neighbours in the same word that are left alone.
#[test]
fn compare_and_swap_of_16_bits() {
    let d = Device::new();
    for place in [0u64, 2] {
        let o = d.put(&[0x1234_1234u32]);
        let body = format!(
            ".reg .b64 o; .reg .b16 a, b, c; .reg .pred p; .reg .b32 x;\n\
             ld.param.u64 o, [po]; ld.volatile.global.b16 a, [o+{place}];\n\
             again: add.u16 b, a, 3; atom.global.cas.b16 c, [o+{place}], a, b; setp.ne.b16 p, c, a; mov.b16 a, c; @p bra again; ret;"
        );
        run(&d, ".param .u64 po", &body, 4, 64, &[Arg::U64(o)]);
        let want = 0x1234 + 3 * 256;
        let want = if place == 0 { 0x1234_0000 | want } else { want << 16 | 0x1234 };
        assert_eq!(d.get::<u32>(o, 1), [want], "at byte {place}");
    }
}

/// Groups of copies: to wait for all but the newest one is to have the others.
#[test]
fn groups_of_copies_are_waited_for() {
    let d = Device::new();
    let i = d.put(&(1..=256u32).collect::<Vec<_>>());
    let o = d.put(&[0u32; 64]);
    let body = ".shared .align 16 .b8 s[1024]; .reg .b64 i, o, w; .reg .b32 t, a, b, v, x;\n\
        ld.param.u64 i, [pi]; ld.param.u64 o, [po]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 4; add.u64 i, i, w; add.u64 o, o, w; mov.u32 a, s; mad.lo.u32 a, t, 4, a;\n\
        cp.async.ca.shared.global [a], [i], 4; cp.async.commit_group; cp.async.ca.shared.global [a+256], [i+256], 4; cp.async.commit_group;\n\
        cp.async.ca.shared.global [a+512], [i+512], 4; cp.async.commit_group;\n\
        cp.async.wait_group 2; ld.shared.u32 v, [a]; cp.async.wait_group 1; ld.shared.u32 x, [a+256]; mad.lo.u32 v, x, 1000, v;\n\
        cp.async.wait_group 0; ld.shared.u32 x, [a+512]; mad.lo.u32 v, x, 1000000, v; st.global.u32 [o], v; ret;";
    run(&d, ".param .u64 pi, .param .u64 po", body, 1, 64, &[i, o].map(Arg::U64));
    let want: Vec<u32> = (1..=64).map(|n| n + 1000 * (n + 64) + 1_000_000 * (n + 128)).collect();
    assert_eq!(d.get::<u32>(o, 64), want);
}

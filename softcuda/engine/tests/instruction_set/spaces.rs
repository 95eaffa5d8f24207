//! Address spaces as the PTX manual draws them, *Generic Addressing*: windows of constants, local and shared memory, and that of a
//! kernel's parameters, which lies within the global one. Texts of the oldest version that is read.

use crate::common::{Arg, Device};

fn run(version: &str, text: &str, block: u32, args: &dyn Fn(u64) -> Vec<Arg>, words: usize) -> Vec<u32> {
    let d = Device::new();
    let m = d.load(&format!(".version {version}\n.target sm_75\n.address_size 64\n{text}"));
    let o = d.put(&vec![0xdead_beefu32; words]);
    d.run(&m.kernels()[0], [1; 3], [block, 1, 1], &args(o)).unwrap();
    d.get(o, words)
}

const SPACES: [&str; 6] = ["const", "shared", "local", "global", "param", "shared::cluster"];

/// An address of each space, and in which windows it lies, in the order of [`SPACES`].
#[test]
fn every_window_holds_its_own_addresses() {
    let rows = [
        ("mov.u64 a, c0; cvta.const.u64 a, a;", [true, false, false, false, false, false]),
        ("mov.u64 a, c0; cvta.const.u64 a, a; add.u64 a, a, 15;", [true, false, false, false, false, false]),
        ("mov.u64 a, s0; cvta.shared.u64 a, a;", [false, true, false, false, false, true]),
        ("mov.u64 a, l0; cvta.local.u64 a, a;", [false, false, true, false, false, false]),
        ("mov.u64 a, g0; cvta.global.u64 a, a;", [false, false, false, true, false, false]),
        ("mov.u64 a, po; cvta.param.u64 a, a;", [false, false, false, true, true, false]),
        ("mov.u64 a, last; cvta.param.u64 a, a; add.u64 a, a, 7;", [false, false, false, true, true, false]),
        ("mov.u64 a, o;", [false, false, false, true, false, false]),
    ];
    for block in [1, 32] {
        for (row, want) in &rows {
            let asks: String = SPACES
                .iter()
                .enumerate()
                .map(|(i, s)| {
                    format!("isspacep.{s} p, a; selp.u32 v, 1, 0, p; st.global.u32 [o+{}], v;\n", 4 * i)
                })
                .collect();
            let text = format!(
                ".const .align 8 .b8 c0[16] = {{1}}; .global .align 8 .b8 g0[16];\n\
                 .visible .entry k(.param .u64 po, .param .align 8 .b8 last[8]) {{\n\
                 .shared .align 8 .b8 s0[16]; .local .align 8 .b8 l0[16]; .reg .b64 a, o; .reg .b32 v; .reg .pred p;\n\
                 ld.param.u64 o, [po]; {row}\n{asks} ret; }}\n"
            );
            let got = run("8.0", &text, block, &|o| vec![Arg::U64(o), Arg::U64(7)], 6);
            assert_eq!(got, want.map(u32::from), "{row} in {SPACES:?}, {block} threads");
        }
    }
}

/// What `__grid_constant__` parameters come to: their generic address, which may be handed to a function and read at any place.
#[test]
fn parameters_are_read_by_generic_addresses() {
    let text = ".func (.param .b32 r) get(.param .b64 p, .param .b32 i) { .reg .b64 a, w; .reg .b32 v, n;\n\
           ld.param.u64 a, [p]; ld.param.u32 n, [i]; mul.wide.u32 w, n, 4; add.u64 a, a, w; ld.u32 v, [a]; st.param.b32 [r], v; ret; }\n\
        .visible .entry k(.param .u64 po, .param .u64 first, .param .align 4 .b8 s[12]) {\n\
           .reg .b64 a, o, w; .reg .b32 t, v; mov.b64 a, s; cvta.param.u64 a, a; ld.param.u64 o, [po]; mov.u32 t, %tid.x;\n\
           mul.wide.u32 w, t, 4; add.u64 o, o, w; rem.u32 t, t, 3;\n\
           { .param .b64 p; .param .b32 i; .param .b32 r; st.param.b64 [p], a; st.param.b32 [i], t; call.uni (r), get, (p, i); ld.param.b32 v, [r]; }\n\
           cvta.to.param.u64 a, a; ld.param.u32 t, [a+8]; add.u32 v, v, t; st.global.u32 [o], v; ret; }\n";
    let d = Device::new();
    let m = d.load(&format!(".version 8.0\n.target sm_75\n.address_size 64\n{text}"));
    let kernel = &m.kernels()[0];
    let o = d.put(&[0u32; 64]);
    let mut params = vec![0; kernel.param_bytes() as usize];
    params[..8].copy_from_slice(&o.to_le_bytes());
    for (i, v) in [100u32, 200, 300].into_iter().enumerate() {
        params[16 + 4 * i..20 + 4 * i].copy_from_slice(&v.to_le_bytes());
    }
    let launch = softcuda_engine::Launch { grid: [1; 3], block: [64, 1, 1], params, ..Default::default() };
    d.engine.run(kernel, &launch).unwrap();
    for (t, v) in d.get::<u32>(o, 64).into_iter().enumerate() {
        assert_eq!(v, [100, 200, 300][t % 3] + 300, "thread {t}");
    }
}

/// What lies behind the parameters is none of them, and they cannot be written.
#[test]
fn nothing_but_the_parameters() {
    let d = Device::new();
    for access in ["ld.u32 v, [a+4096];", "ld.u32 v, [a+-4096];", "st.u32 [a], v;", "atom.add.u32 v, [a], 1;"]
    {
        for block in [1, 32] {
            let m = d.load(&format!(
                ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 po) {{ .reg .b64 a, o; .reg .b32 v;\n\
                 ld.param.u64 o, [po]; mov.b32 v, 1; mov.b64 a, po; cvta.param.u64 a, a; {access} st.global.u32 [o], v; ret; }}"
            ));
            let o = d.put(&[7u32]);
            let f = d.run(&m.kernels()[0], [1; 3], [block, 1, 1], &[Arg::U64(o)]).unwrap_err();
            assert_eq!(f.kind, softcuda_engine::FaultKind::IllegalAddress, "{access}");
            assert_eq!(d.get::<u32>(o, 1), [7]);
        }
    }
}

/// Nor by their names.
#[test]
fn parameters_are_not_written_by_name() {
    for access in
        ["st.param.u32 [po], v;", "st.u32 [po], v;", "st.global.u32 [po], v;", "red.add.u32 [po], v;"]
    {
        let text = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 po) {{ .reg .b32 v;\nmov.b32 v, 1;\n{access}\nret; }}"
        );
        let error = softcuda_engine::Module::parse(&text).expect_err(access);
        assert_eq!(error.line, 6, "{access}: {error}");
    }
}

/// Constants by their generic address.
#[test]
fn constants_are_read_by_generic_addresses() {
    let text = ".const .align 4 .b32 c[4] = {10, 20, 30, 40};\n\
        .visible .entry k(.param .u64 po) { .reg .b64 a, b, o, w; .reg .b32 t, v, u; ld.param.u64 o, [po]; mov.u32 t, %tid.x;\n\
        mul.wide.u32 w, t, 4; add.u64 o, o, w; and.b32 t, t, 3; mul.wide.u32 w, t, 4; mov.u64 a, c; cvta.const.u64 a, a; add.u64 a, a, w; ld.u32 v, [a];\n\
        cvta.to.const.u64 b, a; ld.const.u32 u, [b]; add.u32 v, v, u; st.global.u32 [o], v; ret; }\n";
    let got = run("8.0", text, 64, &|o| vec![Arg::U64(o)], 64);
    for (t, v) in got.into_iter().enumerate() {
        assert_eq!(v as usize, 20 * (t % 4 + 1), "thread {t}");
    }
}

/// A text as compilers of CUDA 9 and 10 wrote it: `.version 6.x`, `shfl.sync` with its predicate, `vote`, `.b8` arrays.
#[test]
fn texts_of_the_oldest_versions() {
    let text = ".visible .entry k(\n\t.param .u64 k_param_0\n)\n.maxntid 64, 1, 1\n.minnctapersm 2\n{\n\
        .reg .pred \t%p<4>;\n.reg .f32 \t%f<4>;\n.reg .b32 \t%r<8>;\n.reg .b64 \t%rd<8>;\n\
        // demoted variable\n.shared .align 4 .b8 k$cache[256];\n\
        ld.param.u64 \t%rd1, [k_param_0];\ncvta.to.global.u64 \t%rd2, %rd1;\nmov.u32 \t%r1, %tid.x;\n\
        shl.b32 \t%r2, %r1, 2;\nmov.u32 \t%r3, k$cache;\nadd.s32 \t%r4, %r3, %r2;\nst.shared.u32 \t[%r4], %r1;\nbar.sync \t0;\n\
        mov.u32 \t%r5, 31;\nmov.u32 \t%r6, 1;\nmov.u32 \t%r7, -1;\nshfl.sync.bfly.b32 \t%r1|%p1, %r1, %r6, %r5, %r7;\n\
        setp.gt.u32 \t%p2, %r1, 3;\nvote.sync.ballot.b32 \t%r7, %p2, %r7;\nand.b32 \t%r7, %r7, 240;\nadd.s32 \t%r1, %r1, %r7;\n\
        mul.wide.u32 \t%rd3, %r2, 1;\nadd.s64 \t%rd4, %rd2, %rd3;\nst.global.u32 \t[%rd4], %r1;\nret;\n}\n";
    for version in ["6.0", "6.3", "6.4", "6.5"] {
        let got = run(version, text, 64, &|o| vec![Arg::U64(o)], 64);
        for (t, v) in got.into_iter().enumerate() {
            assert_eq!(v as usize, (t ^ 1) + 240, "thread {t}, version {version}");
        }
    }
}

/// `ld` and `st` of eight elements, and of four of 64 bits: 256 bits at once.
#[test]
fn vectors_of_eight() {
    let text = ".visible .entry k(.param .u64 po, .param .u64 pi) { .reg .b64 i, o, w, x<4>; .reg .b32 t, v<8>; .reg .f32 f<8>;\n\
        ld.param.u64 o, [po]; ld.param.u64 i, [pi]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 32; add.u64 i, i, w; mul.wide.u32 w, t, 96; add.u64 o, o, w;\n\
        ld.global.v8.b32 {v0, v1, v2, v3, v4, v5, v6, v7}, [i]; st.global.v8.b32 [o], {v7, v6, v5, v4, v3, v2, v1, v0};\n\
        ld.global.v4.u64 {x0, x1, x2, x3}, [i]; st.global.v4.b64 [o+32], {x3, x2, x1, x0};\n\
        ld.global.nc.v8.f32 {f0, f1, f2, f3, f4, f5, _, f7}, [i]; mov.f32 f6, f0; st.global.v8.f32 [o+64], {f0, f1, f2, f3, f4, f5, f6, f7}; ret; }\n";
    let d = Device::new();
    let m = d.load(&format!(".version 9.0\n.target sm_75\n.address_size 64\n{text}"));
    for block in [1usize, 32, 48] {
        let input: Vec<u32> = (0..8 * block as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
        let (i, o) = (d.put(&input), d.put(&vec![0u32; 24 * block]));
        d.run(&m.kernels()[0], [1; 3], [block as u32, 1, 1], &[o, i].map(Arg::U64)).unwrap();
        for (t, (x, got)) in input.chunks(8).zip(d.get::<u32>(o, 24 * block).chunks(24)).enumerate() {
            let back: Vec<u32> = x.iter().rev().copied().collect();
            let pairs: Vec<u32> = x.chunks(2).rev().flatten().copied().collect();
            let same = [&x[..6], &[x[0], x[7]]].concat();
            assert_eq!(got, [back, pairs, same].concat(), "thread {t} of {block}");
        }
    }
}

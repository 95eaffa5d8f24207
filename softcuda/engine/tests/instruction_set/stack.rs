//! `alloca`, `stacksave` and `stackrestore`: memory that a thread takes while it runs.

use crate::common::{Arg, Device};
use softcuda_engine::FaultKind;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Adds up 0 to n - 1 times x, by way of `n` words that it takes, and calls itself with n - 1 before it looks at them again.
const DEEP: &str = ".func (.param .b32 r) deep(.param .b32 pn, .param .b32 px) {\n\
    .reg .b32 n, x, i, v, s; .reg .b64 m, q, w; .reg .pred p;\n\
    ld.param.u32 n, [pn]; ld.param.u32 x, [px]; mul.wide.u32 w, n, 4; alloca.u64 m, w, 16; mov.u32 s, 0;\n\
    setp.eq.u32 p, n, 0; @p bra END;\n\
    mov.u32 i, 0; mov.u64 q, m;\n\
    FILL: mul.lo.u32 v, i, x; st.local.u32 [q], v; add.u64 q, q, 4; add.u32 i, i, 1; setp.lt.u32 p, i, n; @p bra FILL;\n\
    { .param .b32 a, b, c; sub.u32 i, n, 1; st.param.b32 [a], i; st.param.b32 [b], x; call (c), deep, (a, b); ld.param.b32 s, [c]; }\n\
    mov.u32 i, 0; mov.u64 q, m;\n\
    SUM: ld.local.u32 v, [q]; add.u32 s, s, v; add.u64 q, q, 4; add.u32 i, i, 1; setp.lt.u32 p, i, n; @p bra SUM;\n\
    END: st.param.b32 [r], s; ret; }\n";

/// By thread: the sum over m <= n of 0 + 1 + … + (m - 1), times x.
fn deep(n: u32, x: u32) -> u32 {
    (0..=n).map(|m| (0..m).sum::<u32>()).sum::<u32>() * x
}

#[test]
fn every_call_has_memory_of_its_own_and_gives_it_back() {
    let text = format!(
        "{HEAD}{DEEP}.visible .entry k(.param .u64 po) {{\n\
         .reg .b32 t, n, x, s, sum, i, b; .reg .b64 o, w; .reg .pred p;\n\
         ld.param.u64 o, [po]; mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mad.lo.u32 x, b, 1000, t; rem.u32 n, t, 13; mov.u32 sum, 0; mov.u32 i, 0;\n\
         LOOP: {{ .param .b32 a, c, r; st.param.b32 [a], n; st.param.b32 [c], x; call (r), deep, (a, c); ld.param.b32 s, [r]; }}\n\
         add.u32 sum, sum, s; add.u32 i, i, 1; setp.lt.u32 p, i, 200; @p bra LOOP;\n\
         mov.u32 n, %ntid.x; mad.lo.u32 t, b, n, t; mul.wide.u32 w, t, 4; add.u64 o, o, w; st.global.u32 [o], sum; ret; }}\n"
    );
    let d = Device::new();
    let m = d.load(&text);
    let o = d.put(&[0u32; 40 * 70]);
    d.run(&m.kernels()[0], [40, 1, 1], [70, 1, 1], &[Arg::U64(o)]).unwrap();
    for (i, v) in d.get::<u32>(o, 40 * 70).into_iter().enumerate() {
        let (block, t) = (i as u32 / 70, i as u32 % 70);
        assert_eq!(v, 200 * deep(t % 13, 1000 * block + t), "block {block}, thread {t}");
    }
}

/// In a kernel: sizes that differ over the lanes, alignment, no byte of one thread in another's, and memory that a loop gives back.
#[test]
fn a_kernel_takes_and_gives_back() {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 po) {{\n\
         .reg .b32 t, i, v, bad; .reg .b64 o, w, m, n, g, size, top, first; .reg .pred p;\n\
         ld.param.u64 o, [po]; mov.u32 t, %tid.x; rem.u32 v, t, 29; add.u32 v, v, 1; cvt.u64.u32 size, v;\n\
         alloca.u64 m, size; cvta.local.u64 g, m; st.u8 [g], t;\n\
         mov.u32 i, 0; mov.u32 bad, 0; stacksave.u64 top;\n\
         LOOP: alloca.u64 n, 1000, 256; st.local.v2.u32 [n], {{t, i}}; and.b64 w, n, 255; setp.ne.u64 p, w, 0; @p add.u32 bad, bad, 1;\n\
         setp.eq.u32 p, i, 0; @p mov.u64 first, n; setp.ne.u64 p, n, first; @p add.u32 bad, bad, 1;\n\
         bar.sync 0; ld.local.u32 v, [n]; setp.ne.u32 p, v, t; @p add.u32 bad, bad, 1;\n\
         stackrestore.u64 top; add.u32 i, i, 1; setp.lt.u32 p, i, 500; @p bra LOOP;\n\
         alloca.u64 n, 8; setp.ge.u64 p, n, m; @p add.u32 bad, bad, 1; st.local.u64 [n], -1;\n\
         and.b64 w, m, 7; setp.ne.u64 p, w, 0; @p add.u32 bad, bad, 1;\n\
         ld.u8 v, [g]; and.b32 i, t, 255; setp.ne.u32 p, v, i; @p add.u32 bad, bad, 1;\n\
         mul.wide.u32 w, t, 4; add.u64 o, o, w; st.global.u32 [o], bad; ret; }}\n"
    );
    let d = Device::new();
    let m = d.load(&text);
    let o = d.put(&[7u32; 300]);
    // More blocks than there are places: memory is used again by the next one.
    d.run(&m.kernels()[0], [50, 1, 1], [300, 1, 1], &[Arg::U64(o)]).unwrap();
    assert_eq!(d.get::<u32>(o, 300), vec![0; 300]);
}

/// More than a thread has is a fault, whatever the size; so is a stack pointer that comes from nowhere. Sizes of 0 are none.
#[test]
fn too_much_is_a_fault() {
    let run = |body: &str| {
        let text = format!(
            "{HEAD}.visible .entry k(.param .u64 po) {{ .reg .b64 o, s, m; .reg .pred p; .reg .b32 i;\n\
             ld.param.u64 s, [po]; mov.u32 i, 0;\n{body}\nret; }}\n"
        );
        let d = Device::new();
        let m = d.load(&text);
        move |size: u64| d.run(&m.kernels()[0], [1; 3], [32, 1, 1], &[Arg::U64(size)]).map_err(|f| f.kind)
    };
    let once = run("alloca.u64 m, s;");
    assert_eq!(once(0), Ok(()));
    assert_eq!(once(1000), Ok(()));
    for size in [1 << 20, 1 << 40, 1 << 63, u64::MAX, u64::MAX - 7] {
        assert_eq!(once(size), Err(FaultKind::IllegalAddress), "{size:x}");
    }
    let often = run("LOOP: alloca.u64 m, s; add.u32 i, i, 1; setp.lt.u32 p, i, 100000; @p bra LOOP;");
    assert_eq!(often(16), Err(FaultKind::IllegalAddress));
    let restored = run("stackrestore.u64 s;\n alloca.u64 m, 8; st.local.u64 [m], 1;");
    for place in [0, 4096, 1 << 46, u64::MAX] {
        assert_eq!(restored(place), Err(FaultKind::IllegalAddress), "{place:x}");
    }
}

/// A thread that ends deep inside of a function leaves nothing taken for the next one in its place.
#[test]
fn an_exit_gives_all_back() {
    let text = format!(
        "{HEAD}.func deep(.param .b32 pn) {{ .reg .b64 m; .reg .b32 n; .reg .pred p;\n\
         ld.param.u32 n, [pn]; alloca.u64 m, 4000; st.local.u32 [m], n; setp.lt.u32 p, n, 3; @p exit;\n\
         {{ .param .b32 a; sub.u32 n, n, 1; st.param.b32 [a], n; call deep, (a); }} ret; }}\n\
         .visible .entry k(.param .u64 po) {{ .reg .b64 o, m; .reg .b32 v; ld.param.u64 o, [po]; alloca.u64 m, 512;\n\
         {{ .param .b32 a; st.param.b32 [a], 9; call deep, (a); }} atom.global.add.u32 v, [o], 1; ret; }}\n"
    );
    let d = Device::new();
    let m = d.load(&text);
    let o = d.put(&[0u32]);
    d.run(&m.kernels()[0], [2000, 1, 1], [33, 1, 1], &[Arg::U64(o)]).unwrap();
    assert_eq!(d.get::<u32>(o, 1), [0], "nobody comes back from `deep`");
}

#[test]
fn what_alloca_does_not_have() {
    for (body, why) in [
        ("alloca.u32 r, 8;", "alloca.u32"),
        ("alloca.u64 m, 8, 3;", "power of two"),
        ("alloca.u64 m, 8, 65536;", "out of range"),
        ("stacksave.b64 m;", "stacksave.b64"),
    ] {
        let text = format!("{HEAD}.entry k() {{ .reg .b64 m; .reg .b32 r; {body} ret; }}\n");
        let error = softcuda_engine::Module::parse(&text).unwrap_err();
        assert!(error.message.contains(why), "{body}: {error}");
    }
}

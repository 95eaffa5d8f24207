//! `st.async`, `red.async`, `st.bulk` and `clusterlaunchcontrol`; `redux` of floats; where the reserved shared memory is.

use crate::common::{Arg, Device, pack};
use softcuda_engine::{FaultKind, Launch};

fn kernel(body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 po) {{\n{body}\n}}\n"
    )
}

/// A cluster of two blocks: each sends to the other, and waits at its own object until all bytes have come.
#[test]
fn blocks_send_to_each_other() {
    let body = "\
        .shared .align 16 .b8 data[64]; .shared .b64 bar; .reg .b64 o, x, w; .reg .b32 t, r, n, far, object, v, local, me; .reg .pred p, q;\n\
        .reg .f32 f<4>;\n\
        ld.param.u64 o, [po]; mov.u32 t, %tid.x; mov.u32 r, %cluster_ctarank; xor.b32 n, r, 1; setp.ne.u32 q, t, 0;\n\
        mov.u32 local, data; @q bra ready;\n\
        mbarrier.init.shared.b64 [bar], 1; st.shared.u32 [data+32], 100; st.shared.u32 [data+36], 0xff; st.shared.u64 [data+40], 7;\n\
        st.shared.u32 [data+48], -5;\n\
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 52;\n\
        ready: barrier.cluster.arrive; barrier.cluster.wait; @q bra wait;\n\
        mapa.shared::cluster.u32 far, local, n; mov.u32 me, bar; mapa.shared::cluster.u32 object, me, n;\n\
        add.u32 v, r, 1000; cvt.rn.f32.u32 f0, v; mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0;\n\
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [far], v, [object];\n\
        cvt.u64.u32 x, v; st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [far+8], x, [object];\n\
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [far+16], {f0, f1, f2, f3}, [object];\n\
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [far+32], v, [object];\n\
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.and.b32 [far+36], v, [object];\n\
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [far+40], x, [object];\n\
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.s32 [far+48], r, [object];\n\
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [far+52], 9, [object];\n\
        wait: mbarrier.try_wait.parity.shared.b64 p, [bar], 0; @!p bra wait; setp.gt.u32 p, t, 13; @p bra end;\n\
        shl.b32 v, t, 2; add.u32 local, local, v; ld.shared.u32 v, [local]; mad.lo.u32 r, r, 14, t; mul.wide.u32 w, r, 4; add.u64 o, o, w;\n\
        st.global.u32 [o], v; end: barrier.cluster.arrive; barrier.cluster.wait; ret;";
    let d = Device::new();
    let m = d.load(&kernel(body));
    let o = d.put(&[0u32; 28]);
    let k = &m.kernels()[0];
    let launch = Launch {
        grid: [2, 1, 1],
        block: [32, 1, 1],
        cluster: [2, 1, 1],
        params: pack(k, &[Arg::U64(o)]),
        ..Launch::default()
    };
    d.engine.run(k, &launch).unwrap();
    let got: Vec<u32> = d.get(o, 28);
    for (rank, words) in got.chunks(14).enumerate() {
        let from = 1 - rank as u32;
        let v = 1000 + from;
        let f = (v as f32).to_bits();
        let want = [v, 0, v, 0, f, f, f, f, 100 + v, 0xff & v, 7 + v, 0, from];
        assert_eq!(words[..13], want, "block {rank}");
        assert_eq!(words[13], 1, "inc");
    }
}

/// Without an mbarrier object they are releases of global memory.
#[test]
fn releases_of_global_memory() {
    let body = ".reg .b64 o; ld.param.u64 o, [po]; st.async.release.gpu.global.u32 [o], 5; st.async.mmio.release.sys.global.u64 [o+8], 6;\n\
        red.async.release.gpu.global.add.u32 [o], 7; ret;";
    let d = Device::new();
    let o = d.put(&[0u32; 4]);
    d.run(&d.load(&kernel(body)).kernels()[0], [1; 3], [1; 3], &[Arg::U64(o)]).unwrap();
    assert_eq!(d.get::<u32>(o, 4), [12, 0, 6, 0]);
}

#[test]
fn bulk_stores_of_zeros() {
    let run = |size: u64| {
        let body = format!(
            ".shared .align 16 .b8 s[256]; .reg .b64 o, n; .reg .b32 a, v, i; .reg .pred p; ld.param.u64 o, [po]; mov.u64 n, {size}; mov.u32 i, 0; mov.u32 a, s;\n\
             fill: st.shared.u32 [a], -1; add.u32 a, a, 4; add.u32 i, i, 1; setp.lt.u32 p, i, 64; @p bra fill;\n\
             st.bulk.weak.shared::cta [s+16], n, 0; mov.u32 i, 0; mov.u32 a, s;\n\
             out: ld.shared.u32 v, [a]; st.global.u32 [o], v; add.u64 o, o, 4; add.u32 a, a, 4; add.u32 i, i, 1; setp.lt.u32 p, i, 64; @p bra out; ret;"
        );
        let d = Device::new();
        let o = d.put(&[0u32; 64]);
        d.run(&d.load(&kernel(&body)).kernels()[0], [1; 3], [1; 3], &[Arg::U64(o)])
            .map(|()| d.get::<u32>(o, 64))
            .map_err(|f| f.kind)
    };
    for size in [0, 8, 64, 240] {
        let words = (4..4 + size as usize / 4).collect::<Vec<_>>();
        let want: Vec<u32> = (0..64).map(|i| if words.contains(&i) { 0 } else { u32::MAX }).collect();
        assert_eq!(run(size).unwrap(), want, "{size}");
    }
    for size in [248, 1 << 20, u64::MAX - 7] {
        assert_eq!(run(size), Err(FaultKind::IllegalAddress), "{size:x}");
    }
    assert_eq!(run(12), Err(FaultKind::MisalignedAddress));
}

/// A block that asks for another one's work is told that there is none, by the way that the answer would come.
#[test]
fn nothing_is_cancelled() {
    let body = ".shared .align 16 .b8 s[16]; .shared .b64 bar; .reg .b64 o; .reg .b32 v; .reg .pred p, q; .reg .b128 w;\n\
        ld.param.u64 o, [po]; mbarrier.init.shared.b64 [bar], 1; st.shared.u64 [s], -1; st.shared.u64 [s+8], -1;\n\
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;\n\
        clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [s], [bar];\n\
        wait: mbarrier.try_wait.parity.shared.b64 p, [bar], 0; @!p bra wait;\n\
        ld.shared.b128 w, [s]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 q, w; selp.u32 v, 1, 0, q; st.global.u32 [o], v;\n\
        clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 v, w; ret;";
    let d = Device::new();
    let o = d.put(&[9u32]);
    d.run(&d.load(&kernel(body)).kernels()[0], [1; 3], [1; 3], &[Arg::U64(o)]).unwrap();
    assert_eq!(d.get::<u32>(o, 1), [0]);
}

/// `redux` of floats by the manual's rules: numbers win unless `.NaN` is given, and -0 is less than +0.
#[test]
fn floats_are_reduced() {
    let forms = [
        "redux.sync.min.f32",
        "redux.sync.max.f32",
        "redux.sync.min.abs.f32",
        "redux.sync.max.abs.f32",
        "redux.sync.min.NaN.f32",
        "redux.sync.max.NaN.f32",
        "redux.sync.max.abs.NaN.f32",
    ];
    let mut body = String::from(
        ".reg .b64 o, w; .reg .b32 t; .reg .f32 f, x; ld.param.u64 o, [po]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 4; add.u64 w, o, w;\n\
         ld.global.f32 f, [w];\n",
    );
    for (i, form) in forms.iter().enumerate() {
        body += &format!("{form} x, f, -1; st.global.f32 [o+{}], x;\n", 128 + 4 * i);
    }
    let run = |lanes: [f32; 32]| -> Vec<f32> {
        let d = Device::new();
        let o = d.put(&lanes.into_iter().chain([0.0; 7]).collect::<Vec<f32>>());
        d.run(&d.load(&kernel(&(body.clone() + "ret;"))).kernels()[0], [1; 3], [32, 1, 1], &[Arg::U64(o)])
            .unwrap();
        d.get(o + 128, 7)
    };
    let plain: [f32; 32] = std::array::from_fn(|i| i as f32 - 20.0);
    assert_eq!(run(plain), [-20.0, 11.0, 0.0, 20.0, -20.0, 11.0, 20.0]);
    let mut holes = plain;
    holes[3] = f32::NAN;
    let got = run(holes);
    assert_eq!(got[..4], [-20.0, 11.0, 0.0, 20.0]);
    assert!(got[4..].iter().all(|f| f.to_bits() == 0x7fff_ffff), "{got:?}");
    let mut zeros = [0.0f32; 32];
    zeros[9] = -0.0;
    let got = run(zeros);
    assert!(got[0].is_sign_negative() && got[1].is_sign_positive() && got[2].is_sign_positive());
    assert!(run([f32::NAN; 32]).iter().all(|f| f.is_nan()));
}

/// What cooperative groups of several warps keep in the block's reserved memory is nobody else's, and another kernel has none.
#[test]
fn reserved_shared_memory() {
    let text = kernel(
        ".shared .align 4 .b8 own[64]; .extern .shared .align 4 .b8 dynamic[]; .reg .b64 o; .reg .b32 s, e, a, b, v;\n\
         ld.param.u64 o, [po]; mov.u32 s, %reserved_smem_offset_1; mov.u32 e, %reserved_smem_offset_end; mov.u32 a, own; mov.u32 b, dynamic;\n\
         st.shared.u32 [s], 1; st.shared.u32 [s+284], 2; st.shared.u32 [a], 3; st.shared.u32 [b], 4; ld.shared.u32 v, [s];\n\
         st.global.v4.u32 [o], {s, e, a, b}; st.global.u32 [o+16], v; mov.u64 o, %current_graph_exec; ret;",
    ) + ".visible .entry none(.param .u64 po) { .shared .align 4 .b8 own[64]; st.shared.u32 [own], 1; ret; }\n";
    let d = Device::new();
    let m = d.load(&text);
    let o = d.put(&[0u32; 5]);
    let k = &m.kernels()[0];
    let launch = Launch {
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: 4,
        params: pack(k, &[Arg::U64(o)]),
        ..Launch::default()
    };
    d.engine.run(k, &launch).unwrap();
    let got: Vec<u32> = d.get(o, 5);
    let [start, end, own, dynamic] = [0, 1, 2, 3].map(|i| got[i]);
    assert!(end - start >= 288 && start.is_multiple_of(16));
    assert!((own + 64 <= start || own >= end) && (dynamic + 4 <= start || dynamic >= end), "{got:?}");
    assert_eq!(got[4], 1);
    assert_eq!(m.kernels()[1].static_shared, 64);
}

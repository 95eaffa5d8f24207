//! `mbarrier`, clusters and what goes with them.

use crate::common::{Arg, Device, pack};
use softcuda_engine::{FaultKind, Launch};

const HEAD: &str = ".version 8.4\n.target sm_90\n.address_size 64\n";

fn kernel(params: &str, body: &str) -> String {
    format!("{HEAD}.visible .entry k({params}) {{\n{body}\n}}\n")
}

/// 64 threads pass 10 phases; in each, all see what all others wrote before it.
#[test]
fn threads_meet_at_an_mbarrier() {
    for wait in [
        "mbarrier.try_wait.shared::cta.b64 p, [bar], state;",
        "mbarrier.test_wait.shared.b64 p, [bar], state;",
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [bar], phase, 1000;",
    ] {
        let body = format!(
            ".shared .b64 bar; .shared .b32 s[64]; .reg .b64 o, state, w; .reg .b32 t, a, i, v, sum, j, phase, m; .reg .pred p, q;\n\
             ld.param.u64 o, [po]; mov.u32 t, %tid.x; setp.ne.u32 q, t, 0; @q bra go;\n\
             mbarrier.init.shared::cta.b64 [bar], 64;\n\
             go: bar.sync 0; mov.u32 i, 0; mov.u32 sum, 0; mov.u32 a, s; mad.lo.u32 a, t, 4, a; mov.u32 m, s;\n\
             loop: mad.lo.u32 v, i, 100, t; st.shared.u32 [a], v; and.b32 phase, i, 1;\n\
             mbarrier.arrive.release.cta.shared::cta.b64 state, [bar];\n\
             wait: {wait}\n\
             @!p bra wait;\n\
             add.u32 j, t, 1; and.b32 j, j, 63; mad.lo.u32 j, j, 4, m; ld.shared.u32 v, [j]; add.u32 sum, sum, v;\n\
             bar.sync 0; add.u32 i, i, 1; setp.lt.u32 p, i, 10; @p bra loop;\n\
             mul.wide.u32 w, t, 4; add.u64 o, o, w; st.global.u32 [o], sum; ret;"
        );
        let d = Device::new();
        let o = d.put(&[0u32; 64]);
        let m = d.load(&kernel(".param .u64 po", &body));
        d.run(&m.kernels()[0], [1; 3], [64, 1, 1], &[Arg::U64(o)]).unwrap();
        for (t, v) in d.get::<u32>(o, 64).into_iter().enumerate() {
            assert_eq!(v as usize, 10 * ((t + 1) % 64) + 100 * 45, "thread {t}: {wait}");
        }
    }
}

/// Counts, transactions, who drops out: the object's answers one after the other, by one thread.
#[test]
fn an_mbarrier_counts() {
    let body = ".shared .b64 bar; .reg .b64 o, s; .reg .b32 v<9>, n; .reg .pred p;\n\
        ld.param.u64 o, [po]; mbarrier.init.shared.b64 [bar], 3;\n\
        mbarrier.arrive.shared.b64 s, [bar], 2; mbarrier.pending_count.b64 n, s; st.global.u32 [o], n;\n\
        mbarrier.test_wait.parity.shared.b64 p, [bar], 0; selp.u32 v0, 1, 0, p; st.global.u32 [o+4], v0;\n\
        mbarrier.arrive.expect_tx.shared::cta.b64 s, [bar], 16; mbarrier.pending_count.b64 n, s; st.global.u32 [o+8], n;\n\
        mbarrier.test_wait.parity.shared.b64 p, [bar], 0; selp.u32 v0, 1, 0, p; st.global.u32 [o+12], v0;\n\
        mbarrier.complete_tx.shared::cta.relaxed.cta.b64 [bar], 16;\n\
        mbarrier.test_wait.parity.shared.b64 p, [bar], 0; selp.u32 v0, 1, 0, p; st.global.u32 [o+16], v0;\n\
        mbarrier.arrive_drop.shared.b64 s, [bar]; mbarrier.arrive.shared.b64 _, [bar]; mbarrier.arrive.shared.b64 _, [bar];\n\
        mbarrier.test_wait.parity.shared.b64 p, [bar], 1; selp.u32 v0, 1, 0, p; st.global.u32 [o+20], v0;\n\
        cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; cp.async.mbarrier.arrive.shared.b64 [bar];\n\
        mbarrier.arrive.shared.b64 s, [bar]; mbarrier.pending_count.b64 n, s; st.global.u32 [o+24], n;\n\
        mbarrier.test_wait.shared.b64 p, [bar], s; selp.u32 v0, 1, 0, p; st.global.u32 [o+28], v0;\n\
        mbarrier.inval.shared.b64 [bar]; ret;";
    let d = Device::new();
    let o = d.put(&[9u32; 8]);
    let m = d.load(&kernel(".param .u64 po", body));
    d.run(&m.kernels()[0], [1; 3], [1; 3], &[Arg::U64(o)]).unwrap();
    assert_eq!(d.get::<u32>(o, 8), [3, 0, 1, 0, 1, 1, 1, 1]);
}

#[test]
fn an_mbarrier_object_is_checked_memory() {
    let d = Device::new();
    let m = d.load(&kernel("", ".reg .b32 a; mov.u32 a, 0x100000; mbarrier.init.shared.b64 [a], 1; ret;"));
    let f = d.run(&m.kernels()[0], [1; 3], [1; 3], &[]).unwrap_err();
    assert_eq!(f.kind, FaultKind::IllegalAddress);
    let m = d.load(&kernel(
        "",
        ".shared .b64 s; .reg .b32 a; mov.u32 a, s; mbarrier.init.shared.b64 [a+4], 1; ret;",
    ));
    let f = d.run(&m.kernels()[0], [1; 3], [1; 3], &[]).unwrap_err();
    assert_eq!(f.kind, FaultKind::MisalignedAddress);
}

/// Every block of a cluster writes into the shared memory of the next one, three times around, with the cluster's barrier between.
const RING: &str = ".shared .b32 s[64]; .reg .b64 o, w, g; .reg .b32 t, r, n, a, v, far, i, x, y; .reg .pred p;\n\
    ld.param.u64 o, [po]; mov.u32 t, %tid.x; mov.u32 r, %cluster_ctarank; mov.u32 n, %cluster_nctarank;\n\
    mov.u32 a, s; mad.lo.u32 a, t, 4, a; mad.lo.u32 v, r, 1000, t; st.shared.u32 [a], v; mov.u32 i, 0;\n\
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n\
    loop: ld.shared.u32 v, [a]; add.u32 x, r, 1; rem.u32 x, x, n; mapa.shared::cluster.u32 far, a, x;\n\
    barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n\
    st.shared::cluster.u32 [far], v;\n\
    barrier.cluster.arrive; barrier.cluster.wait;\n\
    add.u32 i, i, 1; setp.lt.u32 p, i, 3; @p bra loop;\n\
    ld.shared.u32 v, [a]; mov.u32 x, %ctaid.x; mov.u32 y, %nctaid.x; mov.u32 i, %ctaid.y; mad.lo.u32 x, i, y, x; mad.lo.u32 x, x, 64, t;\n\
    mul.wide.u32 w, x, 4; add.u64 o, o, w; st.global.u32 [o], v; ret;";

#[test]
fn blocks_of_a_cluster_share_their_memory() {
    let d = Device::new();
    let m = d.load(&kernel(".param .u64 po", RING));
    let k = &m.kernels()[0];
    for (grid, cluster) in
        [([6, 1, 1], [2, 1, 1]), ([4, 2, 1], [4, 1, 1]), ([2, 4, 1], [2, 4, 1]), ([3, 1, 1], [0; 3])]
    {
        let blocks = (grid[0] * grid[1]) as usize;
        let o = d.put(&vec![0u32; blocks * 64]);
        let params = pack(k, &[Arg::U64(o)]);
        let launch = Launch { grid, block: [64, 1, 1], params, cluster, ..Launch::default() };
        d.engine.run(k, &launch).unwrap();
        let got: Vec<u32> = d.get(o, blocks * 64);
        let [cx, cy] = if cluster == [0; 3] { [1, 1] } else { [cluster[0], cluster[1]] };
        let size = cx * cy;
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                let rank = x % cx + y % cy * cx;
                let from = (rank + 3 * size - 3) % size;
                for t in 0..64 {
                    let at = ((y * grid[0] + x) * 64 + t) as usize;
                    assert_eq!(
                        got[at],
                        from * 1000 + t,
                        "block {x},{y} of {grid:?} by {cluster:?}, thread {t}"
                    );
                }
            }
        }
    }
}

#[test]
fn registers_and_addresses_of_a_cluster() {
    let body = ".shared .b32 s[8]; .reg .b64 o, w, g, h; .reg .b32 v, b, a; .reg .pred p, q;\n\
        ld.param.u64 o, [po]; mov.u32 b, %ctaid.x; mul.wide.u32 w, b, 64; add.u64 o, o, w;\n\
        mov.u32 v, %clusterid.x; st.global.u32 [o], v; mov.u32 v, %nclusterid.x; st.global.u32 [o+4], v;\n\
        mov.u32 v, %cluster_ctaid.x; st.global.u32 [o+8], v; mov.u32 v, %cluster_nctaid.x; st.global.u32 [o+12], v;\n\
        mov.pred p, %is_explicit_cluster; selp.u32 v, 1, 0, p; st.global.u32 [o+16], v;\n\
        mov.u64 g, s; cvta.shared.u64 g, g; mapa.u64 h, g, 1; getctarank.u64 v, h; st.global.u32 [o+20], v;\n\
        isspacep.shared::cluster p, h; isspacep.shared::cta q, h; selp.u32 v, 1, 0, p; selp.u32 a, 2, 0, q; add.u32 v, v, a; st.global.u32 [o+24], v;\n\
        mapa.shared::cluster.u32 a, s, 0; getctarank.shared::cluster.u32 v, a; st.global.u32 [o+28], v;\n\
        getctarank.shared::cluster.u32 v, s; st.global.u32 [o+32], v; barrier.cluster.arrive; barrier.cluster.wait; ret;";
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 po)\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{{\n{body}\n}}\n"
    );
    let d = Device::new();
    let m = d.load(&text);
    let k = &m.kernels()[0];
    let o = d.put(&[0u32; 64]);
    let launch =
        Launch { grid: [4, 1, 1], block: [1; 3], params: pack(k, &[Arg::U64(o)]), ..Launch::default() };
    d.engine.run(k, &launch).unwrap();
    let got: Vec<u32> = d.get(o, 64);
    for b in 0..4 {
        // The other block's memory is in the cluster's window only; our own in both.
        let space = if b % 2 == 1 { 3 } else { 1 };
        let want = [b / 2, 2, b % 2, 2, 1, 1, space, 0, b % 2];
        assert_eq!(got[b as usize * 16..b as usize * 16 + 9], want, "block {b}");
    }
    let bad = |l: Launch| assert_eq!(d.engine.run(k, &l).unwrap_err().kind, FaultKind::InvalidLaunch);
    bad(Launch { grid: [3, 1, 1], ..launch.clone() });
    bad(Launch { cluster: [4, 1, 1], ..launch });
}

/// A block that hands something to another one through an mbarrier in the other's shared memory.
#[test]
fn an_mbarrier_of_another_block() {
    let body = ".shared .b64 bar; .shared .b32 s; .reg .b64 o; .reg .b32 r, far, b, v; .reg .pred p, q;\n\
        ld.param.u64 o, [po]; mov.u32 r, %cluster_ctarank; setp.eq.u32 q, r, 0;\n\
        mov.u32 b, bar; @q mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;\n\
        barrier.cluster.arrive; barrier.cluster.wait; @q bra take;\n\
        mapa.shared::cluster.u32 far, s, 0; st.shared::cluster.u32 [far], 77;\n\
        mapa.shared::cluster.u32 far, b, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [far]; bra end;\n\
        take: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [bar], 0; @!p bra take;\n\
        ld.shared.u32 v, [s]; st.global.u32 [o], v;\n\
        end: barrier.cluster.arrive; barrier.cluster.wait; ret;";
    let d = Device::new();
    let m = d.load(&kernel(".param .u64 po", body));
    let k = &m.kernels()[0];
    let o = d.put(&[0u32]);
    let params = pack(k, &[Arg::U64(o)]);
    let launch = Launch { grid: [2, 1, 1], block: [1; 3], params, cluster: [2, 1, 1], ..Launch::default() };
    d.engine.run(k, &launch).unwrap();
    assert_eq!(d.get::<u32>(o, 1), [77]);
}

/// Threads that end are not waited for, in any block.
#[test]
fn a_cluster_does_not_wait_for_threads_that_ended() {
    let body = ".reg .b64 o; .reg .b32 t, r, v; .reg .pred p, q;\n\
        ld.param.u64 o, [po]; mov.u32 t, %tid.x; mov.u32 r, %cluster_ctarank; setp.lt.u32 p, t, r; @p exit;\n\
        barrier.cluster.arrive; barrier.cluster.wait; atom.global.add.u32 v, [o], 1; ret;";
    let d = Device::new();
    let m = d.load(&kernel(".param .u64 po", body));
    let k = &m.kernels()[0];
    let o = d.put(&[0u32]);
    let params = pack(k, &[Arg::U64(o)]);
    let launch =
        Launch { grid: [8, 1, 1], block: [40, 1, 1], params, cluster: [4, 1, 1], ..Launch::default() };
    d.engine.run(k, &launch).unwrap();
    assert_eq!(d.get::<u32>(o, 1), [2 * (40 + 39 + 38 + 37)]);
}

/// 64 bytes of shared memory: an access beyond them, in the block's own or in another block's, is a fault, also where the
/// memory behind is some other block's. An address of the end is one, as pointers to the end of an array are.
#[test]
fn what_lies_behind_the_shared_memory_of_a_block_is_none_of_it() {
    let body = ".shared .align 16 .b32 s[16]; .reg .b64 a, b; .reg .b32 at, v;\n\
        ld.param.u32 at, [po]; mapa.shared::cluster.u32 v, 64, 1; cvt.u64.u32 a, v; cvta.shared::cluster.u64 a, a;\n\
        mapa.shared::cluster.u32 v, 60, 1; cvt.u64.u32 b, v; cvta.shared::cluster.u64 b, b; sub.u64 a, a, b; setp.ne.u64 p, a, 4; @p trap;\n\
        st.shared.u32 [s], 1; barrier.cluster.arrive; barrier.cluster.wait;\n\
        ld.shared::cluster.u32 v, [at]; barrier.cluster.arrive; barrier.cluster.wait; ret;";
    let d = Device::new();
    let m = d.load(&kernel(".param .u32 po", &format!(".reg .pred p;\n{body}")));
    let k = &m.kernels()[0];
    let run = |at: u32| {
        let params = pack(k, &[Arg::U32(at)]);
        let launch =
            Launch { grid: [2, 1, 1], block: [32, 1, 1], params, cluster: [2, 1, 1], ..Launch::default() };
        d.engine.run(k, &launch).map_err(|f| f.kind)
    };
    // Rank + 1 is in the top byte; 0 there is the block itself.
    for block in [0, 1 << 24, 2 << 24] {
        assert_eq!(run(block | 60), Ok(()));
        for beyond in [64, 4096, 1 << 16, 0xff_fffc] {
            assert_eq!(run(block | beyond), Err(FaultKind::IllegalAddress), "{block:x}, {beyond:x}");
        }
    }
    assert_eq!(run(3 << 24), Err(FaultKind::IllegalAddress), "there is no third block");
}

//! What the lanes of a warp do together, in whole warps and in the parts that divergence leaves, against integers; and the special
//! registers that say where a thread stands.

use crate::common::{Arg, Device, pack};
use softcuda_engine::Launch;

const THREADS: usize = 64;

/// The operations: what is stored in the order of [`expected`].
const OPERATIONS: &str = "redux.sync.and.b32 x, v, m; st.global.u32 [o], x; redux.sync.or.b32 x, v, m; st.global.u32 [o+4], x;\n\
    redux.sync.xor.b32 x, v, m; st.global.u32 [o+8], x; redux.sync.add.u32 x, v, m; st.global.u32 [o+12], x;\n\
    redux.sync.min.s32 x, v, m; st.global.u32 [o+16], x; redux.sync.max.s32 x, v, m; st.global.u32 [o+20], x;\n\
    redux.sync.min.u32 x, v, m; st.global.u32 [o+24], x; redux.sync.max.u32 x, v, m; st.global.u32 [o+28], x;\n\
    vote.sync.all.pred p, b, m; selp.u32 x, 1, 0, p; st.global.u32 [o+32], x; vote.sync.any.pred p, b, m; selp.u32 x, 1, 0, p; st.global.u32 [o+36], x;\n\
    vote.sync.uni.pred p, b, m; selp.u32 x, 1, 0, p; st.global.u32 [o+40], x; vote.sync.uni.pred p, !b, m; selp.u32 x, 1, 0, p; st.global.u32 [o+44], x;\n\
    vote.sync.ballot.b32 x, b, m; st.global.u32 [o+48], x; match.any.sync.b32 x, v, m; st.global.u32 [o+52], x;\n\
    match.any.sync.b64 x, w, m; st.global.u32 [o+56], x; match.all.sync.b64 x|p, w, m; selp.u32 y, 1, 0, p; add.u32 x, x, y; st.global.u32 [o+60], x;\n";
const RESULTS: usize = 16;

struct Lane {
    v: u32,
    w: u64,
    b: bool,
}

fn expected(lanes: &[Lane], members: &[usize], me: usize) -> [u32; RESULTS] {
    let all = || members.iter().map(|i| lanes[*i].v);
    let mask = |f: &dyn Fn(&Lane) -> bool| {
        members.iter().filter(|i| f(&lanes[**i])).fold(0u32, |m, i| m | 1 << (i % 32))
    };
    let ballot = mask(&|l| l.b);
    let whole = mask(&|_| true);
    let same = mask(&|l| l.w == lanes[me].w) == whole;
    let signed = || all().map(|v| v as i32);
    [
        all().fold(!0, |a, v| a & v),
        all().fold(0, |a, v| a | v),
        all().fold(0, |a, v| a ^ v),
        all().fold(0, u32::wrapping_add),
        signed().min().unwrap() as u32,
        signed().max().unwrap() as u32,
        all().min().unwrap(),
        all().max().unwrap(),
        (ballot == whole).into(),
        (ballot != 0).into(),
        (ballot == whole || ballot == 0).into(),
        (ballot == whole || ballot == 0).into(),
        ballot,
        mask(&|l| l.v == lanes[me].v),
        mask(&|l| l.w == lanes[me].w),
        if same { whole.wrapping_add(1) } else { 0 },
    ]
}

/// `group` of a lane is the part that it belongs to; a part goes its own way and names itself in its masks.
fn check(groups: usize, group: fn(usize) -> usize) {
    let d = Device::new();
    let mut parts = String::new();
    for g in 0..groups {
        let next = format!("NEXT{g}");
        parts += &format!("setp.ne.u32 p, g, {g}; @p bra {next};\n{OPERATIONS}bra END;\n{next}:\n");
    }
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 pi, .param .u64 po) {{\n\
         .reg .b64 i, o, w, a; .reg .b32 t, g, m, v, x, y; .reg .pred p, b;\n\
         ld.param.u64 i, [pi]; ld.param.u64 o, [po]; mov.u32 t, %tid.x; mul.wide.u32 a, t, 32; add.u64 i, i, a; mul.wide.u32 a, t, {}; add.u64 o, o, a;\n\
         ld.global.u32 g, [i]; ld.global.u32 m, [i+4]; ld.global.u32 v, [i+8]; ld.global.u32 x, [i+12]; ld.global.u64 w, [i+16]; setp.ne.u32 b, x, 0;\n\
         {parts}END: ret; }}",
        4 * RESULTS
    );
    let m = d.load(&text);
    // Values: many equal ones; then groups in which all votes, and all values, are the same.
    let mut s = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        s
    };
    for round in 0..8u64 {
        let lanes: Vec<Lane> = (0..THREADS)
            .map(|t| {
                let r = next();
                let uniform = round >= 4 && (group(t) as u64 + round).is_multiple_of(2);
                let v = if round % 2 == 0 { (r >> 8) as u32 } else { 0x8000_0000 | (r >> 8 & 3) as u32 };
                // The halves of the wide values repeat, so that both count.
                let w = (r >> 20 & 1) << 32 | (r >> 21 & 1);
                let b = if uniform { (group(t) / 2).is_multiple_of(2) } else { r >> 40 & 1 == 1 };
                Lane { v, w: if uniform { 0x1_0000_0000 } else { w }, b }
            })
            .collect();
        let members: Vec<Vec<usize>> = (0..THREADS)
            .map(|t| (t / 32 * 32..t / 32 * 32 + 32).filter(|i| group(*i) == group(t)).collect())
            .collect();
        let input: Vec<u32> = lanes
            .iter()
            .enumerate()
            .flat_map(|(t, l)| {
                let mask = members[t].iter().fold(0u32, |m, i| m | 1 << (i % 32));
                [group(t) as u32, mask, l.v, l.b.into(), l.w as u32, (l.w >> 32) as u32, 0, 0]
            })
            .collect();
        let (i, o) = (d.put(&input), d.put(&vec![0xdead_beefu32; RESULTS * THREADS]));
        d.run(&m.kernels()[0], [1; 3], [THREADS as u32, 1, 1], &[i, o].map(Arg::U64)).unwrap();
        for (t, got) in d.get::<u32>(o, RESULTS * THREADS).chunks(RESULTS).enumerate() {
            assert_eq!(got, expected(&lanes, &members[t], t), "thread {t}, round {round}, {groups} groups");
        }
    }
}

#[test]
fn whole_warps() {
    check(1, |_| 0);
}

#[test]
fn parts_of_warps() {
    check(2, |t| usize::from(t >= 40));
    check(4, |t| t % 4);
    check(5, |t| (t * t + t / 3) % 5);
}

/// Special registers of a block of 24 × 3 threads: two warps and a part of a third, by linear numbers.
#[test]
fn where_a_thread_stands() {
    let d = Device::new();
    let names = [
        "laneid",
        "warpid",
        "nwarpid",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "dynamic_smem_size",
        "total_smem_size",
    ];
    let reads: String = names
        .iter()
        .enumerate()
        .map(|(i, n)| format!("mov.u32 v, %{n}; st.global.u32 [o+{}], v;\n", 4 * i))
        .collect();
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 4 .b8 dynamic[];\n.visible .entry k(.param .u64 po) {{\n\
         .shared .align 4 .b8 s[100]; .reg .b64 o, w; .reg .b32 t, x, y, n, v;\n\
         ld.param.u64 o, [po]; mov.u32 x, %tid.x; mov.u32 y, %tid.y; mov.u32 n, %ntid.x; mad.lo.u32 t, y, n, x;\n\
         mul.wide.u32 w, t, 40; add.u64 o, o, w; mov.u32 v, 1; st.shared.u32 [s], v; st.shared.u32 [dynamic], v;\n{reads} ret; }}"
    );
    let m = d.load(&text);
    let k = &m.kernels()[0];
    let o = d.put(&[0u32; 72 * 10]);
    let launch = Launch {
        grid: [1; 3],
        block: [24, 3, 1],
        dynamic_shared: 60,
        params: pack(k, &[Arg::U64(o)]),
        ..Launch::default()
    };
    d.engine.run(k, &launch).unwrap();
    for (t, got) in d.get::<u32>(o, 720).chunks(10).enumerate() {
        let bit = 1u32 << (t % 32);
        // PTX manual, `%total_smem_size`: in units of the allocation, which are 128 bytes from sm_80 on.
        let want = [
            t as u32 % 32,
            t as u32 / 32,
            3,
            bit,
            bit | (bit - 1),
            bit - 1,
            !(bit - 1),
            !(bit | (bit - 1)),
            60,
            256,
        ];
        assert_eq!(got, want, "thread {t}: {names:?}");
    }
}

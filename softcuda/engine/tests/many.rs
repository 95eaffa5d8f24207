//! Many grids at once, from many threads, with and without faults.

mod common;

use common::{Arg, Device, pack};
use softcuda_engine::{FaultKind, Launch};

#[test]
fn eight_threads_launch_at_once() {
    let d = Device::new();
    let m = d.load(include_str!("ptx/reduce_shuffle.ptx"));
    let f = d.load(include_str!("ptx/features.ptx"));
    let kernel = |m: &softcuda_engine::Loaded, n: &str| {
        m.kernels().iter().find(|k| k.name.contains(n)).unwrap().clone()
    };
    let (sum, bad, recur) = (kernel(&m, "sum"), kernel(&f, "bad"), kernel(&f, "recur"));
    let n = 20_000u32;
    let x: Vec<i32> = (0..n as i32).collect();
    let dx = d.put(&x);
    std::thread::scope(|s| {
        for t in 0..8u32 {
            let (d, sum, bad, recur) = (&d, &sum, &bad, &recur);
            s.spawn(move || {
                for round in 0..20u32 {
                    let out = d.put(&[0u64; 32]);
                    let block = [32, 64, 256, 1024][((t + round) % 4) as usize];
                    let launch = Launch {
                        grid: [n.div_ceil(block), 1, 1],
                        block: [block, 1, 1],
                        dynamic_shared: block / 8,
                        params: pack(sum, &[Arg::U64(dx), Arg::U64(out), Arg::U32(n)]),
                        ..Launch::default()
                    };
                    d.engine.run(sum, &launch).unwrap();
                    assert_eq!(d.get::<u64>(out, 1)[0], u64::from(n) * u64::from(n - 1) / 2);
                    if round % 5 == t % 5 {
                        let e = d.run(bad, [40, 1, 1], [64, 1, 1], &[Arg::U64(out)]).unwrap_err();
                        assert_eq!(e.kind, FaultKind::IllegalAddress);
                    }
                    d.run(recur, [1; 3], [10, 1, 1], &[Arg::U64(out)]).unwrap();
                    assert_eq!(d.get::<u32>(out, 10), [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]);
                    assert!(d.memory.free(out));
                }
            });
        }
    });
}

/// Accesses to registered host memory go by a helper that must keep every register.
#[test]
fn values_live_over_slow_accesses() {
    let d = Device::new();
    let mut body = String::new();
    let sum = 40;
    for i in 0..sum {
        body += &format!("ld.f32 f{i}, [q0+{}]; ld.u32 r{i}, [q1+{}];\n", 4 * i, 4 * i);
    }
    body += "mov.f32 f99, 0f00000000; mov.u32 r99, 0;\n";
    for i in 0..sum {
        body += &format!("fma.rn.f32 f99, f99, 0f3F000000, f{i}; mad.lo.u32 r99, r99, 3, r{i};\n");
    }
    let m = d.load(&format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {{\n\
         .reg .b64 q<3>; .reg .f32 f<100>; .reg .b32 r<100>; ld.param.u64 q0, [a]; ld.param.u64 q1, [b];\n{body}\
         st.f32 [q0], f99; st.u32 [q1], r99; ret; }}"
    ));
    let mut host: Vec<f32> = (0..sum).map(|i| i as f32 * 1.25 + 0.1).collect();
    let mut ints: Vec<u32> = (0..sum).map(|i| i * 7919 + 3).collect();
    let f = host.iter().fold(0.0, |s, v| s * 0.5 + v);
    let i = ints.iter().fold(0u32, |s, v| s.wrapping_mul(3).wrapping_add(*v));
    let (a, b) = (host.as_mut_ptr() as u64, ints.as_mut_ptr() as u64);
    assert!(d.memory.register_host(a, 4 * u64::from(sum)) && d.memory.register_host(b, 4 * u64::from(sum)));
    d.run(&m.kernels()[0], [1; 3], [1; 3], &[Arg::U64(a), Arg::U64(b)]).unwrap();
    assert!(d.memory.unregister_host(a) && d.memory.unregister_host(b));
    assert_eq!((host[0], ints[0]), (f, i));
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

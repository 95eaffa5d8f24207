//! Times two kernels of the project's CUDA cases: vector add of 16 Mi elements, and a tiled matrix product of 512³.
//!
//!     cargo run --release -p softcuda-engine --example timing [-- WORKERS]
//!
//! CPU time of this process is shown beside the wall clock, since other load on the machine falsifies the latter; the last column
//! compares CPU times with the same loops compiled by rustc for one core.
#![allow(clippy::print_stdout)]

use softcuda_engine::{Engine, Kernel, Launch, Loaded, Memory, Module};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Bench {
    memory: Arc<Memory>,
    engine: Arc<Engine>,
}

impl Bench {
    fn kernel(&self, ptx: &str, name: &str) -> Arc<Kernel> {
        let loaded = Loaded::new(&self.memory, Module::parse(ptx).expect("valid PTX")).expect("room");
        loaded.kernels().iter().find(|k| k.name.contains(name)).expect("the kernel").clone()
    }

    fn floats(&self, data: &[f32]) -> u64 {
        let bytes: Vec<u8> = data.iter().flat_map(|f| f.to_le_bytes()).collect();
        let a = self.memory.alloc(bytes.len() as u64, 256).expect("room");
        assert!(self.memory.write(a, &bytes));
        a
    }

    fn time(&self, k: &Arc<Kernel>, launch: &Launch) -> (Duration, Duration) {
        best(|| self.engine.run(k, launch).expect("no fault"))
    }
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a plain call that fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// The shortest wall-clock and CPU times of some runs.
fn best(mut f: impl FnMut()) -> (Duration, Duration) {
    let runs: Vec<_> = (0..5)
        .map(|_| {
            let (wall, used) = (Instant::now(), cpu());
            f();
            (wall.elapsed(), cpu() - used)
        })
        .collect();
    let least = |i: fn(&(Duration, Duration)) -> Duration| runs.iter().map(i).min().unwrap_or_default();
    (least(|r| r.0), least(|r| r.1))
}

fn launch(grid: [u32; 3], block: [u32; 3], pointers: &[u64], numbers: &[u32]) -> Launch {
    let mut params: Vec<u8> = pointers.iter().flat_map(|p| p.to_le_bytes()).collect();
    params.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
    Launch { grid, block, dynamic_shared: 0, params, cooperative: false, ..Launch::default() }
}

fn row(name: &str, ours: (Duration, Duration), native: (Duration, Duration)) {
    let ratio = ours.1.as_secs_f64() / native.1.as_secs_f64();
    println!("{name:34} {:>12.3?} {:>12.3?} {ratio:>8.2}", ours.0, ours.1);
}

fn main() {
    let workers = std::env::args().nth(1).and_then(|w| w.parse().ok()).unwrap_or(1);
    let memory = Memory::new(4 << 30).expect("address space");
    let b = Bench { engine: Engine::new(memory.clone(), workers), memory };
    println!("{workers} worker(s)                                wall          CPU    ratio");

    let n = 16usize << 20;
    let (x, y) = (vec![1.5f32; n], vec![2.5f32; n]);
    let mut z = vec![0f32; n];
    let (dx, dy, dz) = (b.floats(&x), b.floats(&y), b.floats(&z));
    let k = b.kernel(include_str!("../tests/ptx/vector_add.ptx"), "add");
    let start = Instant::now();
    b.engine.run(&k, &launch([1; 3], [1; 3], &[dx, dy, dz], &[0])).expect("no fault");
    println!("{:34} {:>12.3?}", "first launch, with compilation", start.elapsed());
    let one = launch([1; 3], [32, 1, 1], &[dx, dy, dz], &[32]);
    println!("{:34} {:>12.3?}", "launch of one block", b.time(&k, &one).0);
    let all = launch([n as u32 / 256, 1, 1], [256, 1, 1], &[dx, dy, dz], &[n as u32]);
    let native = best(|| z.iter_mut().zip(x.iter().zip(&y)).for_each(|(z, (x, y))| *z = x + y));
    row("vector add, 16 Mi", b.time(&k, &all), native);

    let s = 512usize;
    let (x, y) = (vec![1.5f32; s * s], vec![2.5f32; s * s]);
    let mut z = vec![0f32; s * s];
    let (dx, dy, dz) = (b.floats(&x), b.floats(&y), b.floats(&z));
    let k = b.kernel(include_str!("../tests/ptx/matmul_shared.ptx"), "mm");
    let tiles = s as u32 / 16;
    let all = launch([tiles, tiles, 1], [16, 16, 1], &[dx, dy, dz], &[s as u32; 3]);
    let native = best(|| {
        z.fill(0.0);
        for i in 0..s {
            for k in 0..s {
                let a = x[i * s + k];
                for j in 0..s {
                    z[i * s + j] += a * y[k * s + j];
                }
            }
        }
    });
    row("matrix product 512, 16 x 16 tiles", b.time(&k, &all), native);
    let mut out = vec![0; 4];
    assert!(b.memory.read(dz, &mut out));
    assert_eq!(f32::from_le_bytes([out[0], out[1], out[2], out[3]]), z[0]);
}

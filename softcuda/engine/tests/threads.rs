//! When the engine has threads. The only test of this process, since it counts all of them.

mod common;

use common::{Arg, Device};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn threads_start_late_and_end_with_the_engine() {
    let before = threads();
    let d = Device::new();
    let m = d.load(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) { bar.sync 0; ret; }",
    );
    d.run(&m.kernels()[0], [1; 3], [64, 1, 1], &[Arg::U64(0)]).unwrap();
    assert_eq!(threads(), before, "a single block needs no helper");
    d.run(&m.kernels()[0], [64, 1, 1], [64, 1, 1], &[Arg::U64(0)]).unwrap();
    assert_eq!(threads(), before + 1, "two workers: the caller and one thread");
    drop(m);
    drop(d);
    assert_eq!(threads(), before);
}

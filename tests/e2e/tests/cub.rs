//! CUB and Thrust on every road. Not run unless asked for (`cargo test … -- --ignored`; `scripts/test` does): nvcc needs
//! minutes to build the programs.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::{Road, build, run};

#[track_caller]
fn passes(name: &str, road: Road) {
    let command = road.command(build::cub_case(name));
    run(command, Duration::from_secs(100)).expect_last_line(&format!("PASS {name}"));
}

macro_rules! cases {
    ($($name:ident)*) => {
        $(mod $name {
            use super::{Road, passes};
            #[test]
            #[ignore = "needs scripts/build-cub-cases, which takes minutes"]
            fn native() {
                passes(stringify!($name), Road::Native);
            }
            #[test]
            #[ignore = "needs scripts/build-cub-cases, which takes minutes"]
            fn shm() {
                passes(stringify!($name), Road::Shm);
            }
            #[test]
            #[ignore = "needs scripts/build-cub-cases, which takes minutes"]
            fn tcp() {
                passes(stringify!($name), Road::Tcp);
            }
        })*
        const CASES: &[&str] = &[$(stringify!($name)),*];
    };
}

cases! { merge_sort radix_sort reduce_select scan thrust }

#[test]
fn every_source_is_tested() {
    let mut sources: Vec<String> = std::fs::read_dir(build::repository().join("tests/cases/cub"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".cu").map(str::to_owned))
        .collect();
    sources.sort();
    assert_eq!(sources, CASES);
}

//! Every case of tests/cases, built in every way, on every road: one test each.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::switches::{DISABLE, all};
use gpupool_e2e::{Road, build, run};

/// Runs a built case and expects its PASS line.
#[track_caller]
fn passes(kind: &str, name: &str, road: Road) {
    passes_with(kind, name, road, &[]);
}

#[track_caller]
fn passes_with(kind: &str, name: &str, road: Road, variables: &[(&str, &str)]) {
    let mut command = road.command(build::case(kind, name));
    command.envs(variables.iter().copied());
    if name == "spin" {
        command.arg("1");
    }
    run(command, Duration::from_secs(100)).expect_last_line(&format!("PASS {name}"));
}

/// One module a way of building, with a test a case and road.
macro_rules! cases {
    ($kind:ident: $($name:ident)*) => {
        mod $kind {
            $(mod $name {
                use super::super::{Road, passes};
                #[test]
                fn native() {
                    passes(stringify!($kind), stringify!($name), Road::Native);
                }
                #[test]
                fn shm() {
                    passes(stringify!($kind), stringify!($name), Road::Shm);
                }
                #[test]
                fn tcp() {
                    passes(stringify!($kind), stringify!($name), Road::Tcp);
                }
            })*
        }
    };
}

// Everything that can be switched off, switched off: the plain way must be right too.
macro_rules! unoptimised {
    ($($name:ident)*) => {
        mod unoptimised {
            $(mod $name {
                use super::super::{DISABLE, Road, all, passes_with};
                #[test]
                fn shm() {
                    passes_with("static13", stringify!($name), Road::Shm, &[(DISABLE, &all())]);
                }
                #[test]
                fn tcp() {
                    passes_with("static13", stringify!($name), Road::Tcp, &[(DISABLE, &all())]);
                }
            })*
        }
    };
}

/// The ways in which every case is built.
macro_rules! every_case {
    ($($name:ident)*) => {
        cases!(static13: $($name)*);
        cases!(shared13: $($name)*);
        cases!(cudart12: $($name)*);
        unoptimised!($($name)*);
        const CASES: &[&str] = &[$(stringify!($name)),*];
    };
}

every_case! {
    big_copy
    default_stream
    error_codes
    errors
    globals_constants
    launch_params
    many_allocs
    matmul_shared
    narrow_floats
    pinned_async
    printf
    reduce_shuffle
    spin
    sticky_fault
    streams_events
    two_threads
    vector_add
    waiting_copies
}
/// Cases built with other options of the device compiler, which makes other PTX of them: natively only.
macro_rules! options {
    ($($kind:ident)*: $names:tt) => {
        $(mod $kind {
            options!(@ $kind $names);
        })*
    };
    (@ $kind:ident [$($name:ident)*]) => {
        $(#[test]
        fn $name() {
            super::passes(stringify!($kind), stringify!($name), super::Road::Native);
        })*
    };
}
options!(debug device_o0 relocatable fast_math: [globals_constants matmul_shared narrow_floats printf reduce_shuffle]);

/// Cases of calls that are not forwarded yet: natively only.
macro_rules! native_only {
    ($($name:ident)*) => {
        mod native_only {
            $(#[test]
            fn $name() {
                super::passes("static13", stringify!($name), super::Road::Native);
            })*
        }
        const NATIVE_ONLY: &[&str] = &[$(stringify!($name)),*];
    };
}

native_only!(graphs textures virtual_memory);

/// Cases that take long: built in one way.
macro_rules! long {
    ($($name:ident)*) => {
        mod long {
            $(mod $name {
                use super::super::{DISABLE, Road, all, passes, passes_with};
                #[test]
                fn shm() {
                    passes("static13", stringify!($name), Road::Shm);
                }
                #[test]
                fn tcp() {
                    passes("static13", stringify!($name), Road::Tcp);
                }
                #[test]
                fn unoptimised_shm() {
                    passes_with("static13", stringify!($name), Road::Shm, &[(DISABLE, &all())]);
                }
                #[test]
                fn unoptimised_tcp() {
                    passes_with("static13", stringify!($name), Road::Tcp, &[(DISABLE, &all())]);
                }
            })*
        }
        const LONG: &[&str] = &[$(stringify!($name)),*];
    };
}

long!(huge_copy);
cases!(per_thread: default_stream printf two_threads vector_add);

#[test]
fn every_source_is_tested() {
    let directory = build::repository().join("tests/cases");
    let mut sources: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".cu").map(str::to_owned))
        .collect();
    sources.sort();
    let mut tested = [CASES, NATIVE_ONLY, LONG].concat();
    tested.sort_unstable();
    assert_eq!(sources, tested);
}

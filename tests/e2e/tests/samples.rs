//! Programs of tests/cases/samples, written as those are that ship with CUDA: one subject each, on every road that
//! forwards what they use.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::{Road, build, run};

#[track_caller]
fn passes(name: &str, devices: u32, road: Road) {
    let mut command = road.command(build::case("samples", name));
    command.env("SOFTCUDA_DEVICES", devices.to_string());
    run(command, Duration::from_secs(100)).expect_last_line(&format!("PASS {name}"));
}

/// A module a sample, with a test a road; every sample says how many devices it wants.
macro_rules! samples {
    ($($name:ident $devices:literal $($road:ident)*;)*) => {
        $(mod $name {
            $(samples!(@ $road $name $devices);)*
        })*
        const SAMPLES: &[&str] = &[$(stringify!($name)),*];
    };
    (@ native $name:ident $devices:literal) => { samples!(@ native Native $name $devices); };
    (@ shm $name:ident $devices:literal) => { samples!(@ shm Shm $name $devices); };
    (@ tcp $name:ident $devices:literal) => { samples!(@ tcp Tcp $name $devices); };
    (@ $road:ident $variant:ident $name:ident $devices:literal) => {
        #[test]
        fn $road() {
            super::passes(stringify!($name), $devices, super::Road::$variant);
        }
    };
}

samples! {
    assertion 1 native shm tcp;
    clocks 1 native shm tcp;
    cooperative 1 native shm tcp;
    function_pointers 1 native shm tcp;
    host_functions 1 native shm tcp;
    last_block 1 native shm tcp;
    occupancy 1 native shm tcp;
    overlap 1 native shm tcp;
    several_devices 2 native shm tcp;
    sorting 1 native shm tcp;
    stream_ordered 1 native shm tcp;
    transpose 1 native shm tcp;
    // Over a network kernels do not see the host's memory yet.
    zero_copy 1 native shm;
    // Not forwarded yet: peer access, IPC, kernels on memory that the program registered, managed memory.
    peer_access 2 native;
    processes 1 native;
    registered 1 native;
    unified_memory 1 native;
}

/// Device code that is compiled apart and linked. With PTX alone nothing is linked before the program starts.
mod separate {
    use super::*;

    #[track_caller]
    fn passes(way: &str) {
        for road in [Road::Native, Road::Shm, Road::Tcp] {
            run(road.command(build::case("separate", way)), Duration::from_secs(100))
                .expect_last_line("PASS separate");
        }
    }

    #[test]
    fn with_machine_code() {
        passes("default");
    }

    #[test]
    fn as_text_alone() {
        passes("text");
    }
}

#[test]
fn every_source_is_tested() {
    let mut sources: Vec<String> = std::fs::read_dir(build::repository().join("tests/cases/samples"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".cu").map(str::to_owned))
        .collect();
    sources.sort();
    let mut tested = SAMPLES.to_vec();
    tested.sort_unstable();
    assert_eq!(sources, tested);
}

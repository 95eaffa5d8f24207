//! Programs that print what every call of the driver API answers, right uses and wrong ones: through a pool they print
//! exactly what they print natively.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::{Road, build, repository, run};

const LIMIT: Duration = Duration::from_secs(60);

fn said(road: Road, script: &str) -> String {
    said_with(road, script, &[])
}

fn said_with(road: Road, script: &str, variables: &[(&str, &str)]) -> String {
    let mut command = road.command(build::python());
    command.envs(variables.iter().copied());
    command.arg(repository().join("tests/driver").join(format!("{script}.py")));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
    let outcome = run(command, LIMIT);
    outcome.expect_last_line(&format!("PASS {script}"));
    outcome.stdout
}

fn same_as_natively(road: Road, script: &str) {
    let (native, here) = (said(Road::Native, script), said(road, script));
    let difference = native.lines().zip(here.lines()).enumerate().find(|(_, (a, b))| a != b);
    assert!(native == here, "line and what it was natively and here: {difference:?}");
}

macro_rules! scripts {
    ($($script:ident)*) => {$(
        mod $script {
            use super::{Road, same_as_natively};
            #[test]
            fn shm() {
                same_as_natively(Road::Shm, stringify!($script));
            }
            #[test]
            fn tcp() {
                same_as_natively(Road::Tcp, stringify!($script));
            }
        }
    )*};
}

scripts!(memory kernels streams pinned);

/// A small device, filled to its end, with every way of allocating.
mod edge {
    use super::{Road, said_with};

    const SMALL: (&str, &str) = ("SOFTCUDA_MEMORY", "512M");

    #[test]
    fn native() {
        said_with(Road::Native, "edge", &[SMALL]);
    }
    #[test]
    fn shm() {
        said_with(Road::Shm, "edge", &[SMALL]);
    }
    #[test]
    fn tcp() {
        said_with(Road::Tcp, "edge", &[SMALL]);
    }
    #[test]
    fn call_by_call() {
        said_with(Road::Shm, "edge", &[SMALL, ("GPUPOOL_DISABLE", "post_alloc")]);
    }
    /// A driver that takes no wish for an address.
    #[test]
    fn at_addresses_of_the_driver() {
        said_with(Road::Tcp, "edge", &[SMALL, ("SOFTCUDA_VMM_HINT", "refuse")]);
    }
}

/// Pinned memory that kernels use is shared on one host. Over a network it is refused.
mod mapped {
    use super::{Road, said, same_as_natively};

    #[test]
    fn shm() {
        same_as_natively(Road::Shm, "mapped");
    }
    #[test]
    fn tcp() {
        assert!(said(Road::Tcp, "mapped").contains("cuMemHostGetDevicePointer_v2 801"));
    }
}

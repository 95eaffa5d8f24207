//! Programs that print what every call of the driver API answers, right uses and wrong ones: through a pool they print
//! exactly what they print natively.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::{Road, build, repository, run};

const LIMIT: Duration = Duration::from_secs(60);

fn said(road: Road, script: &str) -> String {
    let mut command = road.command(build::python());
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

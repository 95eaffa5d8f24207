//! What a session takes in memory: at most 8 MiB in the client beyond its rings, and 32 MiB in its worker beyond the driver.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::time::Duration;

use gpupool_e2e::{Build, clean, run};

#[test]
fn a_session_is_small() {
    let mut command = clean(Build::find().file("pool-bench"));
    command.arg("memory");
    let outcome = run(command, Duration::from_secs(60));
    assert!(outcome.status.success(), "{outcome:?}");
    // Both sides, over both transports.
    assert_eq!(outcome.stdout.matches("| pass |").count(), 4, "{outcome:?}");
}

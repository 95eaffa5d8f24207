//! `SOFTCUDA_LOG`: `stderr` (or `1`) for a line on stderr for what a program cannot see otherwise: faults of kernels with
//! their place, refused images, calls that this driver does not have. Anything else is the path of a file that gets what
//! devices did and when: see [`softcuda_device::trace`]. Both, with a comma between them, is possible.
#![forbid(unsafe_code)]

use softcuda_device::trace::Trace;
use std::path::Path;
use std::sync::{Arc, Once, OnceLock};

struct Targets {
    lines: bool,
    trace: Option<Arc<Trace>>,
}

fn targets() -> &'static Targets {
    static TARGETS: OnceLock<Targets> = OnceLock::new();
    TARGETS.get_or_init(|| {
        let setting = std::env::var("SOFTCUDA_LOG").unwrap_or_default();
        let mut targets = Targets { lines: false, trace: None };
        for part in setting.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "0") {
            if matches!(part, "stderr" | "1") {
                targets.lines = true;
                continue;
            }
            match Trace::open(Path::new(part)) {
                Ok(trace) => targets.trace = Some(Arc::new(trace)),
                Err(error) => eprintln!("softcuda: SOFTCUDA_LOG: {part}: {error}"),
            }
        }
        targets
    })
}

/// Writes a line if asked to.
pub fn line(text: impl FnOnce() -> String) {
    if targets().lines {
        eprintln!("softcuda: {}", text());
    }
}

/// Writes a line once a process, asked or not: for what gives wrong results in programs that do not look at errors.
pub fn once(text: impl FnOnce() -> String) {
    static SAID: Once = Once::new();
    SAID.call_once(|| eprintln!("softcuda: {}", text()));
}

/// The file for what devices do, if there is one.
pub fn trace() -> Option<Arc<Trace>> {
    targets().trace.clone()
}

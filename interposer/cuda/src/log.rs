//! What the library says, and only when asked (`GPUPOOL_LOG`): lines on stderr or in a file. One line is said unasked,
//! when a session cannot be set up or breaks, or a log file cannot be opened ([`fatal`]).

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Once, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use gpupool_protocol::config::Log;
pub use gpupool_protocol::config::LogLevel;

/// Not yet known.
const UNSET: u8 = u8::MAX;

static LEVEL: AtomicU8 = AtomicU8::new(UNSET);
static FILE: OnceLock<Option<File>> = OnceLock::new();

/// Whether lines of this level are wanted. The first question reads the configuration.
#[inline]
pub fn wants(level: LogLevel) -> bool {
    let now = LEVEL.load(Ordering::Relaxed);
    if now == UNSET { first_question(level) } else { now >= level as u8 }
}

/// `false` only where [`wants`] says so too, and one comparison: before the first question it is `true`.
#[inline(always)]
pub fn may_want(level: LogLevel) -> bool {
    LEVEL.load(Ordering::Relaxed) >= level as u8
}

#[cold]
fn first_question(level: LogLevel) -> bool {
    // A configuration that cannot be read is reported by cuInit; until then nothing is logged.
    set(&gpupool_protocol::config::ClientConfig::load().map(|c| c.log).unwrap_or_default());
    LEVEL.load(Ordering::Relaxed) >= level as u8
}

/// Takes the configuration's choice.
pub fn set(log: &Log) {
    FILE.get_or_init(|| {
        let path = log.file.as_ref()?;
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened
            .map_err(|error| fatal(format_args!("GPUPOOL_LOG: cannot open {}: {error}", path.display())))
            .ok()
    });
    LEVEL.store(log.level as u8, Ordering::Relaxed);
    // This library has a standard library of its own, so its hook is not the program's. Without one a panic, which
    // becomes CUDA_ERROR_UNKNOWN, would write to stderr unasked.
    static HOOK: Once = Once::new();
    HOOK.call_once(|| std::panic::set_hook(Box::new(|info| line(LogLevel::Error, format_args!("{info}")))));
}

/// Writes a line, if its level is wanted.
pub fn line(level: LogLevel, text: fmt::Arguments<'_>) {
    if wants(level) {
        write(format_args!("{level:?} {text}"));
    }
}

/// The one line that is said unasked.
pub fn fatal(text: fmt::Arguments<'_>) {
    to_stderr(format!("gpupool: {text}\n"));
}

fn write(text: fmt::Arguments<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let line = format!("gpupool {}.{:06} {thread} {text}\n", now.as_secs(), now.subsec_micros());
    match FILE.get() {
        Some(Some(file)) => drop((&*file).write_all(line.as_bytes())),
        _ => to_stderr(line),
    }
}

/// One write, so that lines of several threads and processes do not mix. Nothing can be done about a failure.
fn to_stderr(line: String) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

macro_rules! say {
    ($level:ident, $($text:tt)*) => {
        $crate::log::line($crate::log::LogLevel::$level, format_args!($($text)*))
    };
}
pub(crate) use say;

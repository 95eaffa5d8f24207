//! What happens around the body of every exported function: no panic leaves it, and it can be traced.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Instant;

use cudarc::driver::sys::CUresult;

use crate::code::{Answer, Code, NOT_SUPPORTED, UNKNOWN};
use crate::log::{self, LogLevel, say};
use crate::state::objects::lock;

/// Writes a call's arguments.
pub type Arguments<'a> = &'a dyn Fn(&mut fmt::Formatter<'_>) -> fmt::Result;

/// Runs a body, and gives what its exported function returns: a `CUresult` as a number, since one that NVIDIA's runtime expects is not in
/// `cuda.h`.
#[inline(always)]
pub fn number(body: impl FnOnce() -> Answer) -> u32 {
    match body() {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

/// Whether calls are to be traced, or nobody has asked yet: then [`watched`] asks.
#[inline(always)]
pub fn may_be_traced() -> bool {
    log::may_want(LogLevel::Trace)
}

/// Runs a call.
#[inline(always)]
pub fn run(name: &'static str, call: impl FnOnce() -> u32) -> u32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(code) => code,
        Err(panic) => panicked(name, panic),
    }
}

/// Runs a call, and logs it if that is wanted.
#[inline(always)]
pub fn watched(name: &'static str, arguments: Arguments<'_>, call: impl FnOnce() -> u32) -> u32 {
    if log::wants(LogLevel::Trace) { traced(name, arguments, call) } else { run(name, call) }
}

/// Runs a call and logs it.
fn traced(name: &'static str, arguments: Arguments<'_>, call: impl FnOnce() -> u32) -> u32 {
    let start = Instant::now();
    let code = run(name, call);
    let took = start.elapsed();
    let arguments = Shown(arguments).to_string();
    let meaning =
        if code == 0 { String::new() } else { format!(" {}", cuda_abi::errors::name(Code(code).into())) };
    say!(Trace, "{name}({}) = {code}{meaning} in {took:?}", arguments.trim_end_matches(", "));
    code
}

struct Shown<'a>(Arguments<'a>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// A defect of this library must not end the program.
#[cold]
#[inline(never)]
fn panicked(name: &'static str, panic: Box<dyn std::any::Any + Send>) -> u32 {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    say!(Error, "{name}: a defect in gpupool, please report it: {text}");
    UNKNOWN.0
}

/// What a symbol answers that exists and does nothing. Logged once a symbol.
#[cold]
pub fn refuse(name: &'static str) -> CUresult {
    static SAID: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    if log::wants(LogLevel::Warn) {
        let mut said = lock(&SAID);
        if !said.contains(&name) {
            said.push(name);
            say!(Warn, "{name} is not supported: it answers CUDA_ERROR_NOT_SUPPORTED");
        }
    }
    NOT_SUPPORTED.into()
}

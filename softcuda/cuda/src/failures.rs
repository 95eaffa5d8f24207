//! `SOFTCUDA_FAIL`: has calls fail, for tests of what programs do then.
//!
//! `function:n:code`, several with commas between them: the n-th call (1: the first) of a function answers a code instead
//! of doing anything. The function is named as in `cuda.h` or as it is exported: `cuMemAlloc` means `cuMemAlloc_v2` too.
//! With `+` behind the number, so do all later calls: `cuMemAlloc:3+:2`.
#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// One entry.
#[derive(Debug)]
struct Failure {
    function: String,
    first: u64,
    later_too: bool,
    code: u32,
    calls: AtomicU64,
}

/// The code that a call of an exported function answers now, if it shall fail.
pub fn code(symbol: &str) -> Option<u32> {
    static ALL: OnceLock<Vec<Failure>> = OnceLock::new();
    let all = ALL.get_or_init(|| std::env::var("SOFTCUDA_FAIL").map_or(Vec::new(), |text| read(&text)));
    if all.is_empty() { None } else { next(all, symbol) }
}

fn next(all: &[Failure], symbol: &str) -> Option<u32> {
    let mut answer = None;
    for failure in all.iter().filter(|f| f.function == symbol || f.function == base(symbol)) {
        let call = failure.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call == failure.first || (failure.later_too && call > failure.first) {
            answer = answer.or(Some(failure.code));
        }
    }
    answer
}

/// The name without the endings of versions and per-thread forms.
fn base(symbol: &str) -> &str {
    let symbol = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match symbol.rsplit_once("_v") {
        Some((name, version)) if version.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => symbol,
    }
}

fn read(text: &str) -> Vec<Failure> {
    let mut all = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        match one(entry) {
            Some(failure) => all.push(failure),
            None => eprintln!("softcuda: SOFTCUDA_FAIL: `{entry}` is not function:n:code"),
        }
    }
    all
}

fn one(entry: &str) -> Option<Failure> {
    let mut parts = entry.split(':');
    let (function, number, code) = (parts.next()?.to_owned(), parts.next()?, parts.next()?.parse().ok()?);
    let first = number.trim_end_matches('+').parse().ok()?;
    let later_too = number.ends_with('+');
    (parts.next().is_none()).then_some(Failure { function, first, later_too, code, calls: AtomicU64::new(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_that_is_meant_fails_and_no_other() {
        let all = read("cuMemAlloc:2:2, cuInit:1+:999,nonsense");
        assert_eq!(all.len(), 2);
        let codes: Vec<_> =
            ["cuMemAlloc_v2", "cuMemAlloc", "cuMemAlloc_v2", "cuMemAllocHost"].map(|f| next(&all, f)).into();
        assert_eq!(codes, [None, Some(2), None, None]);
        assert_eq!((next(&all, "cuInit"), next(&all, "cuInit")), (Some(999), Some(999)));
        assert_eq!(base("cuMemsetD8Async_ptsz"), "cuMemsetD8Async");
        assert_eq!(base("cuMemcpyHtoD_v2_ptds"), "cuMemcpyHtoD");
    }
}

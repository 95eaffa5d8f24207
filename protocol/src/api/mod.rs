//! The call list: one declaration for each CUDA driver call that means something here.
//!
//! # The grammar
//!
//! ```text
//! /// What it does.
//! local cuCtxGetCurrent(pctx: *mut CUcontext);
//! 120 call cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: Function);
//! 140 post cuMemsetD32Async | cuMemsetD32Async_ptsz(dst: DevicePtr [n * 4], value: u32, n: usize, stream: Stream);
//! 900 call(slow, hand) record copy_out(src: u64, len: u64, stream: Stream, into: BulkOut);
//! hand call cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(dst: *mut c_void, src: u64, n: usize) using copy_out;
//! ```
//!
//! * **`local`** is answered from what the client knows; its body is written by hand in the interposer.
//! * **`NUMBER post`** and **`NUMBER call`** are remoted as they stand: symbol, checks, record, dispatch and reply follow
//!   from the [`kinds`] of the parameters. A post returns at once, a call waits for its answer.
//! * **`hand post`/`hand call`** need judgement on the client: the body is written by hand and sends the records named
//!   behind `using`. Such functions and `local` ones take plain C types.
//! * **`record`** is no CUDA function but a message that hand-written bodies send.
//! * Options: **`slow`** may take long and must leave the worker's ring thread; **`hand`** has a hand-written body on the
//!   worker; without it the worker calls the driver's function of the same name.
//! * Behind `,` stand further names with the same meaning (older versions with the same 64-bit ABI); behind `|` the
//!   per-thread variants, whose null stream is the calling thread's own.
//! * `[…]` behind a kind is the value that the kind needs from the other parameters: a length in bytes, or elements.
//! * Numbers are explicit and never reused: 1–99 session, 100–199 contexts, 200–299 memory, 300–399 copies and sets,
//!   400–499 modules, 500–599 launches, 600–699 streams, 700–799 events.
//!
//! # What is made of it
//!
//! [`numbers`], [`CALLS`] and [`SYMBOLS`]; and three callback macros, each expanding `callback! { prefix… row… }`:
//!
//! * `for_each_hand_symbol!`: `{ SYMBOL legacy|per_thread local|post|call NAME (param: CType, …) }`
//! * `for_each_auto_symbol!`: `{ SYMBOL legacy|per_thread post|call NAME (param: Kind [extent], …) }`
//! * `for_each_record!`: `{ NUMBER post|call quick|slow auto|hand cuda|internal NAME (param: Kind [extent], …) }`
//!
//! A row's kinds and types are resolved where the callback is expanded: bring [`kinds`] into scope.

pub mod kinds;
#[macro_use]
mod list;

/// Whether and how a call leaves the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Answered from state that the client holds.
    Local,
    /// Recorded, sent, and returned from at once.
    Post,
    /// Waits for its answer.
    Call,
}

/// A record that can travel.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// What stands in the record's header.
    pub number: u16,
    /// The driver's symbol, or the record's own name where `internal`.
    pub name: &'static str,
    /// [`Class::Post`] or [`Class::Call`].
    pub class: Class,
    /// It runs on a helper thread of the worker.
    pub slow: bool,
    /// It is a message between hand-written bodies rather than a CUDA function.
    pub internal: bool,
}

/// A symbol that the interposer exports with a meaning.
#[derive(Debug, Clone, Copy)]
pub struct Symbol {
    /// The exported name.
    pub symbol: &'static str,
    /// The declaration that it belongs to: its first name.
    pub call: &'static str,
    /// How the call leaves the client.
    pub class: Class,
    /// Its null stream is the calling thread's own.
    pub per_thread: bool,
}

/// Bits of the map that tells a client which records a worker answers.
pub const CALL_MAP_BITS: usize = 1024;

/// Whether the map of a worker, bit `n % 64` of word `n / 64`, says that it answers call number `n`.
#[inline]
pub fn answered(map: &[u64], number: u16) -> bool {
    map.get(usize::from(number) / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
}

collect_calls!();

/// The record with this number.
pub fn call(number: u16) -> Option<&'static Call> {
    static INDEX: std::sync::OnceLock<Vec<Option<&'static Call>>> = std::sync::OnceLock::new();
    let index = INDEX.get_or_init(|| {
        let mut index = vec![None; CALL_MAP_BITS];
        for call in CALLS {
            index[usize::from(call.number)] = Some(call);
        }
        index
    });
    *index.get(usize::from(number))?
}

/// Whether the record with this number is a slow one, as those are that wait for work.
#[inline]
pub fn is_slow(number: u16) -> bool {
    static SLOW: [bool; CALL_MAP_BITS] = {
        let mut slow = [false; CALL_MAP_BITS];
        let mut i = 0;
        while i < CALLS.len() {
            slow[CALLS[i].number as usize] = CALLS[i].slow;
            i += 1;
        }
        slow
    };
    SLOW.get(usize::from(number)).is_some_and(|slow| *slow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_fits_the_map_and_finds_its_call() {
        for call_ in CALLS {
            assert!(usize::from(call_.number) < CALL_MAP_BITS, "{}", call_.name);
            assert_eq!(call(call_.number).unwrap().name, call_.name);
        }
        assert!(
            is_slow(numbers::stream_synchronize) && !is_slow(numbers::stream_query) && !is_slow(u16::MAX)
        );
        assert!(call(0).is_none(), "0 pads the ring");
        assert!(call(u16::MAX).is_none());
    }
}

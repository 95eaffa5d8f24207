//! The symbols: `extern "C"` functions that check pointers and numbers and call the one function that does the work.
//!
//! Each list below expands to its functions, to a table of their addresses for `cuGetProcAddress`, and to a macro that
//! hands its names on; in the end [`cuda_abi::refuse_rest!`] gets all names and exports the symbols that are missing.
#![allow(clippy::too_many_arguments, clippy::missing_safety_doc, reason = "the prototypes are CUDA's")]

use crate::error::*;
use crate::log;
use cuda_abi::symbols::Implemented;
use cudarc::driver::sys::CUresult;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

#[macro_use]
mod declare;

#[macro_use]
mod init;
#[macro_use]
mod devices;
#[macro_use]
mod contexts;
#[macro_use]
mod greens;
#[macro_use]
mod streams;
#[macro_use]
mod events;
#[macro_use]
mod memories;
#[macro_use]
mod managed;
#[macro_use]
mod virtual_memories;
#[macro_use]
mod ipc;
#[macro_use]
mod pools;
#[macro_use]
mod arrays;
#[macro_use]
mod textures;
#[macro_use]
mod references;
#[macro_use]
mod array_copies;
#[macro_use]
mod batch_copies;
#[macro_use]
mod copies;
#[macro_use]
mod sets;
#[macro_use]
mod modules;
#[macro_use]
mod functions;
#[macro_use]
mod launches;
#[macro_use]
mod captures;
#[macro_use]
mod graphs;
#[macro_use]
mod graph_nodes;
#[macro_use]
mod graph_execs;
#[cfg(test)]
mod coverage;
mod graph_params;
#[macro_use]
mod words;
#[macro_use]
mod profiler;

/// The address of a function, to be handed out.
#[derive(Debug, Clone, Copy)]
pub struct Address(pub *const ());

// SAFETY: the address of code, which is the same for all threads.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// All tables.
const TABLES: &[&[(&str, Address)]] = &[
    init::TABLE,
    devices::TABLE,
    contexts::TABLE,
    greens::TABLE,
    streams::TABLE,
    events::TABLE,
    memories::TABLE,
    managed::TABLE,
    virtual_memories::TABLE,
    ipc::TABLE,
    pools::TABLE,
    arrays::TABLE,
    textures::TABLE,
    references::TABLE,
    array_copies::TABLE,
    batch_copies::TABLE,
    copies::TABLE,
    sets::TABLE,
    modules::TABLE,
    functions::TABLE,
    launches::TABLE,
    captures::TABLE,
    graphs::TABLE,
    graph_nodes::TABLE,
    graph_execs::TABLE,
    words::TABLE,
    profiler::TABLE,
];

/// The addresses of the implemented symbols.
pub fn addresses() -> &'static Implemented<Address> {
    static ADDRESSES: OnceLock<Implemented<Address>> = OnceLock::new();
    ADDRESSES.get_or_init(|| Implemented::new(TABLES.iter().copied().flatten().copied()))
}

/// Whether the symbol is in a list.
#[cfg(test)]
fn implements(symbol: &str) -> bool {
    TABLES.iter().copied().flatten().any(|(name, _)| *name == symbol)
}

/// What a symbol answers that is exported and not implemented.
fn refuse(symbol: &'static str) -> CUresult {
    log::line(|| format!("{symbol} is not supported"));
    CUDA_ERROR_NOT_SUPPORTED
}

macro_rules! refuse_what_is_missing {
    (; $($name:ident)*) => {
        mod missing {
            cuda_abi::refuse_rest! { super::refuse; $($name)* extra: cuProfilerInitialize cuProfilerStart cuProfilerStop }
        }
    };
}

init_names! { devices_names contexts_names greens_names streams_names events_names memories_names managed_names virtual_memories_names ipc_names pools_names arrays_names textures_names references_names array_copies_names batch_copies_names copies_names
sets_names modules_names functions_names launches_names captures_names graphs_names graph_nodes_names graph_execs_names words_names refuse_what_is_missing ; }

/// Where a result goes.
struct Out<T>(*mut T);

/// # Safety
/// `place` is null or may be written.
unsafe fn out<T>(place: *mut T) -> Result<Out<T>> {
    if place.is_null() { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(Out(place)) }
}

impl<T> Out<T> {
    /// Writes the result.
    fn set(self, value: T) -> Result {
        // SAFETY: `out` was told that the place may be written, and it is not null.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
}

/// Writes a result that the program may not want.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn set_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null.
        unsafe { place.write_unaligned(value) };
    }
}

/// A name that the program gives.
///
/// # Safety
/// `text` is null or ends with a zero.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the zero. No name of ours is anything but UTF-8.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| CUDA_ERROR_NOT_FOUND)
}

/// A handle as a pointer of whatever type CUDA gives it.
fn handle<T>(number: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(number)
}

/// The stream that a handle means where 0 means `default`.
fn on<T>(stream: *mut T, default: usize) -> usize {
    if stream.is_null() { default } else { stream.addr() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_abi::symbols;

    #[test]
    fn every_symbol_has_one_function_and_lists_name_real_ones() {
        let all: Vec<&str> = TABLES.iter().copied().flatten().map(|(name, _)| *name).collect();
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(all.len(), distinct.len());
        let known = all.iter().filter(|name| symbols::names().any(|n| n == **name)).count();
        assert_eq!(known + 3, all.len(), "all but cuProfiler* are in cuda.h");
    }

    #[test]
    fn every_per_thread_form_of_an_implemented_symbol_is_implemented() {
        for row in symbols::ROWS.iter().filter(|r| r.per_thread) {
            let legacy = row.symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
            assert_eq!(implements(row.symbol), implements(legacy), "{}", row.symbol);
        }
    }
}

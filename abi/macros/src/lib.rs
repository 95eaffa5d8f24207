//! Macros of `cuda-abi` that know the list of symbols that NVIDIA's `cuda.h` declares.
//!
//! Both read `abi/data/getproc-versions.json`, which is derived from the header: one row a symbol. It is embedded in
//! this crate, so that the table and the exports can never come from two versions of the list.
#![forbid(unsafe_code)]

mod data;
mod refuse;

use proc_macro::TokenStream;
use quote::quote;

/// Expands to an array of `Row` (a name that must be in scope), sorted by base name, then legacy before per-thread,
/// then newest version first.
#[proc_macro]
pub fn symbol_rows(input: TokenStream) -> TokenStream {
    if !input.is_empty() {
        return quote!(compile_error!("symbol_rows! takes no arguments")).into();
    }
    let rows = data::rows().into_iter().map(|row| {
        let data::Row { base, version, symbol, per_thread } = row;
        quote!(Row { base: #base, version: #version, symbol: #symbol, per_thread: #per_thread })
    });
    quote!([#(#rows),*]).into()
}

/// Exports every symbol of `cuda.h` that a library does not implement, each answering what one function says.
///
/// ```text
/// refuse_rest! {
///     path::to::refuse;              // fn(&'static str) -> CUresult, called with the symbol's name
///     cuInit cuMemAlloc_v2 …         // what the library implements; commas are allowed
///     extra: cuProfilerStart …       // optional: implemented, but not in cuda.h
/// }
/// ```
///
/// A name that is not in `cuda.h`'s list, an `extra` name that is, and a name given twice are compile errors at that
/// name.
#[proc_macro]
pub fn refuse_rest(input: TokenStream) -> TokenStream {
    refuse::expand(input.into()).unwrap_or_else(|e| e.to_compile_error()).into()
}

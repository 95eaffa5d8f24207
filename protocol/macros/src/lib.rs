//! The proc macro that reads gpupool's call list.
//!
//! The list is parsed once, by [`macro@calls`], and turned into tables and into three *callback macros* which every user
//! of the list expands with a plain `macro_rules!` of its own. This crate knows the list's grammar and nothing of what
//! a client or a server makes of it. The grammar is described in `gpupool_protocol::api`.

mod emit;
mod parse;

use proc_macro::TokenStream;

/// Parses the call list and emits `numbers`, `CALLS`, `SYMBOLS` and the macros `for_each_hand_symbol!`,
/// `for_each_auto_symbol!` and `for_each_record!`.
#[proc_macro]
pub fn calls(input: TokenStream) -> TokenStream {
    match syn::parse::<parse::List>(input) {
        Ok(list) => emit::list(&list).into(),
        Err(error) => error.to_compile_error().into(),
    }
}

//! What the list becomes.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::parse::{Class, Entry, List};

/// Tables and callback macros for the whole list.
pub fn list(list: &List) -> TokenStream {
    let numbers = numbers(list);
    let tables = tables(list);
    let hand = callback("for_each_hand_symbol", list.entries.iter().flat_map(hand_symbols).collect());
    let auto = callback("for_each_auto_symbol", list.entries.iter().flat_map(auto_symbols).collect());
    let records = callback("for_each_record", list.entries.iter().filter_map(record).collect());
    quote! { #numbers #tables #hand #auto #records }
}

impl Class {
    fn word(self) -> Ident {
        format_ident!(
            "{}",
            match self {
                Class::Local => "local",
                Class::Post => "post",
                Class::Call => "call",
            }
        )
    }

    fn variant(self) -> Ident {
        format_ident!(
            "{}",
            match self {
                Class::Local => "Local",
                Class::Post => "Post",
                Class::Call => "Call",
            }
        )
    }
}

fn callback(name: &str, rows: Vec<TokenStream>) -> TokenStream {
    let name = format_ident!("{name}");
    quote! {
        #[doc = "Expands `callback! { prefix… row row … }` with the rows described in [`crate::api`]."]
        #[macro_export]
        macro_rules! #name {
            ($callback:ident $($prefix:tt)*) => { $callback! { $($prefix)* #(#rows)* } };
        }
    }
}

/// (symbol, is its null stream the thread's own) for every exported name.
fn symbols(entry: &Entry) -> impl Iterator<Item = (&Ident, bool)> {
    let names = if entry.internal { &[][..] } else { &entry.names[..] };
    names.iter().map(|n| (n, false)).chain(entry.per_thread.iter().map(|n| (n, true)))
}

fn mode(per_thread: bool) -> Ident {
    format_ident!("{}", if per_thread { "per_thread" } else { "legacy" })
}

fn hand_symbols(entry: &Entry) -> Vec<TokenStream> {
    if entry.number.is_some() {
        return Vec::new();
    }
    let (class, name, params) = (entry.class.word(), &entry.names[0], entry.params_tokens());
    symbols(entry)
        .map(|(symbol, own)| {
            let mode = mode(own);
            quote!({ #symbol #mode #class #name (#params) })
        })
        .collect()
}

fn auto_symbols(entry: &Entry) -> Vec<TokenStream> {
    if entry.number.is_none() || entry.internal {
        return Vec::new();
    }
    let (class, name, params) = (entry.class.word(), &entry.names[0], entry.params_tokens());
    symbols(entry)
        .map(|(symbol, own)| {
            let mode = mode(own);
            quote!({ #symbol #mode #class #name (#params) })
        })
        .collect()
}

fn record(entry: &Entry) -> Option<TokenStream> {
    let number = entry.number?;
    let (class, name, params) = (entry.class.word(), &entry.names[0], entry.params_tokens());
    let pace = format_ident!("{}", if entry.slow { "slow" } else { "quick" });
    let body = format_ident!("{}", if entry.hand { "hand" } else { "auto" });
    let origin = format_ident!("{}", if entry.internal { "internal" } else { "cuda" });
    Some(quote!({ #number #class #pace #body #origin #name (#params) }))
}

fn numbers(list: &List) -> TokenStream {
    let rows = list.entries.iter().filter_map(|entry| {
        let (number, name, docs) = (entry.number?, &entry.names[0], &entry.docs);
        Some(quote! { #(#docs)* #[allow(missing_docs)] pub const #name: u16 = #number; })
    });
    quote! {
        /// The number of each record, under the record's name.
        #[allow(non_upper_case_globals)]
        pub mod numbers { #(#rows)* }
    }
}

fn tables(list: &List) -> TokenStream {
    let calls = list.entries.iter().filter_map(|entry| {
        let (number, class) = (entry.number?, entry.class.variant());
        let (name, slow, internal) = (entry.names[0].to_string(), entry.slow, entry.internal);
        Some(quote! { Call { number: #number, name: #name, class: Class::#class, slow: #slow, internal: #internal } })
    });
    let symbols = list.entries.iter().flat_map(|entry| {
        let (class, call) = (entry.class.variant(), entry.names[0].to_string());
        symbols(entry)
            .map(|(symbol, per_thread)| {
                let symbol = symbol.to_string();
                quote! { Symbol { symbol: #symbol, call: #call, class: Class::#class, per_thread: #per_thread } }
            })
            .collect::<Vec<_>>()
    });
    quote! {
        /// Every record, in the order of the list.
        pub static CALLS: &[Call] = &[ #(#calls),* ];
        /// Every exported symbol that does something, in the order of the list.
        pub static SYMBOLS: &[Symbol] = &[ #(#symbols),* ];
    }
}

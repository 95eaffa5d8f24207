//! `refuse_rest!`: exports for what a library does not implement.

use crate::data;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};
use std::collections::{BTreeSet, HashSet};
use syn::{Error, Result};

/// The parsed arguments.
struct Arguments {
    refuse: syn::Path,
    implemented: Vec<Ident>,
    extra: Vec<Ident>,
}

/// Expands the macro.
pub fn expand(input: TokenStream) -> Result<TokenStream> {
    let arguments = parse(input)?;
    let known: BTreeSet<String> = data::rows().into_iter().map(|row| row.symbol).collect();
    let implemented = check(&arguments, &known)?;
    let refuse = &arguments.refuse;
    let exports = known.iter().filter(|symbol| !implemented.contains(*symbol)).map(|symbol| {
        let name = format_ident!("{symbol}");
        let doc = format!("`{symbol}`: exported, not implemented.");
        quote! {
            #[doc = #doc]
            ///
            /// # Safety
            /// Has no requirement: it ignores whatever it is called with.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn #name() -> ::cuda_abi::sys::CUresult {
                #refuse(#symbol)
            }
        }
    });
    Ok(quote!(#(#exports)*))
}

/// The set of implemented names, or the error that points at a wrong one.
fn check(arguments: &Arguments, known: &BTreeSet<String>) -> Result<HashSet<String>> {
    let mut seen = HashSet::new();
    for name in &arguments.implemented {
        let text = name.to_string();
        if !known.contains(&text) {
            let hint = "no such symbol in cuda.h; if it comes from another header, list it after `extra:`";
            return Err(Error::new(name.span(), format!("{text}: {hint}")));
        }
        if !seen.insert(text) {
            return Err(Error::new(name.span(), format!("{name} is listed twice")));
        }
    }
    let mut extra = HashSet::new();
    for name in &arguments.extra {
        if known.contains(&name.to_string()) {
            return Err(Error::new(name.span(), format!("{name} is in cuda.h: list it before `extra:`")));
        }
        if !extra.insert(name.to_string()) {
            return Err(Error::new(name.span(), format!("{name} is listed twice")));
        }
    }
    Ok(seen)
}

/// Splits `path; names… extra: names…`.
fn parse(input: TokenStream) -> Result<Arguments> {
    let mut tokens = flatten(input).into_iter();
    let mut path = Vec::new();
    loop {
        match tokens.next() {
            Some(TokenTree::Punct(p)) if p.as_char() == ';' => break,
            Some(token) => path.push(token),
            None => {
                let hint = "expected `path::to::refuse;` and then the implemented names";
                return Err(Error::new(proc_macro2::Span::call_site(), hint));
            }
        }
    }
    let refuse = syn::parse2(path.into_iter().collect())?;
    let (mut implemented, mut extra, mut in_extra) = (Vec::new(), Vec::new(), false);
    let mut tokens = tokens.peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) => {
                let colon = matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == ':');
                match (name == "extra" && colon, in_extra) {
                    (true, false) => {
                        in_extra = true;
                        tokens.next();
                    }
                    (true, true) => return Err(Error::new(name.span(), "`extra:` is given twice")),
                    (false, false) => implemented.push(name),
                    (false, true) => extra.push(name),
                }
            }
            TokenTree::Punct(p) if matches!(p.as_char(), ',' | ';') => {}
            other => return Err(Error::new(other.span(), "expected a symbol's name")),
        }
    }
    Ok(Arguments { refuse, implemented, extra })
}

/// Takes away the invisible groups that `macro_rules!` puts around what it captured.
fn flatten(input: TokenStream) -> Vec<TokenTree> {
    let mut flat = Vec::new();
    for token in input {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                flat.extend(flatten(group.stream()))
            }
            other => flat.push(other),
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::expand;
    use quote::quote;

    fn text(input: proc_macro2::TokenStream) -> String {
        expand(input).map_or_else(|e| format!("error: {e}"), |t| t.to_string())
    }

    #[test]
    fn exports_all_but_the_implemented() {
        let all = text(quote!(refuse;));
        assert_eq!(all.matches("no_mangle").count(), 685);
        let some = text(quote!(crate::refuse; cuInit, cuMemAlloc_v2 cuMemAlloc extra: cuProfilerStart));
        assert_eq!(some.matches("no_mangle").count(), 682);
        assert!(!some.contains("fn cuInit (") && some.contains("fn cuDeviceGet ("));
        assert!(some.contains("crate :: refuse (\"cuDeviceGet\")"));
    }

    #[test]
    fn wrong_names_are_errors() {
        for (input, want) in [
            (quote!(refuse; cuInti), "cuInti: no such symbol"),
            (quote!(refuse; cuInit cuInit), "cuInit is listed twice"),
            (quote!(refuse; extra: cuInit), "cuInit is in cuda.h"),
            (quote!(refuse; extra: cuProfilerStop cuProfilerStop), "listed twice"),
            (quote!(refuse; extra: a extra: b), "given twice"),
            (quote!(refuse; (cuInit)), "expected a symbol's name"),
            (quote!(refuse), "expected `path::to::refuse;`"),
        ] {
            let got = text(input);
            assert!(got.starts_with("error: ") && got.contains(want), "{got}");
        }
    }
}

//! The grammar of the call list.

use std::collections::HashMap;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, LitInt, Result, Token, Type, bracketed, parenthesized};

/// Whether and how a call leaves the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Local,
    Post,
    Call,
}

/// One argument: its name, its C type or kind, and what its length or range depends on.
pub struct Param {
    pub name: Ident,
    pub kind: Type,
    pub extent: Option<Expr>,
}

/// One declaration.
pub struct Entry {
    pub docs: Vec<Attribute>,
    pub class: Class,
    /// The record's number; none where the client's body is written by hand.
    pub number: Option<u16>,
    /// The worker runs it on a helper thread.
    pub slow: bool,
    /// The worker's body is written by hand.
    pub hand: bool,
    /// Not a CUDA function: only a record.
    pub internal: bool,
    pub names: Vec<Ident>,
    pub per_thread: Vec<Ident>,
    pub params: Vec<Param>,
    /// The records that a hand-written body sends.
    pub using: Vec<Ident>,
}

/// The whole list.
pub struct List {
    pub entries: Vec<Entry>,
}

impl Parse for List {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut entries = Vec::new();
        while !input.is_empty() {
            entries.push(input.parse::<Entry>()?);
        }
        let list = List { entries };
        list.check()?;
        Ok(list)
    }
}

impl List {
    fn check(&self) -> Result<()> {
        let mut names = HashMap::new();
        let mut numbers = HashMap::new();
        for entry in &self.entries {
            for name in entry.names.iter().chain(&entry.per_thread) {
                if names.insert(name.to_string(), ()).is_some() {
                    return Err(Error::new(name.span(), format!("`{name}` is declared twice")));
                }
            }
            if let Some(number) = entry.number
                && let Some(first) = numbers.insert(number, &entry.names[0])
            {
                return Err(Error::new(
                    entry.names[0].span(),
                    format!("number {number} already belongs to `{first}`; numbers are never reused"),
                ));
            }
        }
        for record in self.entries.iter().flat_map(|e| &e.using) {
            if !self.entries.iter().any(|e| e.number.is_some() && e.names[0] == *record) {
                return Err(Error::new(record.span(), format!("no record is called `{record}`")));
            }
        }
        Ok(())
    }
}

impl Parse for Entry {
    fn parse(input: ParseStream) -> Result<Self> {
        let docs = input.call(Attribute::parse_outer)?;
        let by_hand = input.peek(syn::Ident) && input.fork().parse::<Ident>()? == "hand";
        let mut entry = if by_hand {
            input.parse::<Ident>()?;
            Entry::started(docs, None, class(input)?)
        } else if input.peek(LitInt) {
            let number = input.parse::<LitInt>()?;
            Entry::started(docs, Some(number.base10_parse()?), class(input)?)
        } else {
            let at = input.span();
            let class = class(input)?;
            if class != Class::Local {
                return Err(Error::new(at, "a `post` or `call` has a number before it, or the word `hand`"));
            }
            Entry::started(docs, None, class)
        };
        if entry.number.is_some() {
            entry.options(input)?;
        }
        entry.names(input)?;
        entry.params(input)?;
        if input.peek(syn::Ident) && input.fork().parse::<Ident>()? == "using" {
            input.parse::<Ident>()?;
            let using = Punctuated::<Ident, Token![,]>::parse_separated_nonempty(input)?;
            entry.using = using.into_iter().collect();
        }
        input.parse::<Token![;]>()?;
        entry.check()?;
        Ok(entry)
    }
}

fn class(input: ParseStream) -> Result<Class> {
    let word: Ident = input.parse()?;
    match word.to_string().as_str() {
        "local" => Ok(Class::Local),
        "post" => Ok(Class::Post),
        "call" => Ok(Class::Call),
        other => Err(Error::new(word.span(), format!("`{other}`: a class is one of local, post, call"))),
    }
}

impl Entry {
    fn started(docs: Vec<Attribute>, number: Option<u16>, class: Class) -> Self {
        Entry {
            docs,
            class,
            number,
            slow: false,
            hand: false,
            internal: false,
            names: Vec::new(),
            per_thread: Vec::new(),
            params: Vec::new(),
            using: Vec::new(),
        }
    }

    /// `(slow, hand)` and `record`.
    fn options(&mut self, input: ParseStream) -> Result<()> {
        if input.peek(syn::token::Paren) {
            let inner;
            parenthesized!(inner in input);
            for word in Punctuated::<Ident, Token![,]>::parse_terminated(&inner)? {
                match word.to_string().as_str() {
                    "slow" => self.slow = true,
                    "hand" => self.hand = true,
                    other => {
                        return Err(Error::new(word.span(), format!("`{other}`: options are slow and hand")));
                    }
                }
            }
        }
        if input.fork().parse::<Ident>()? == "record" {
            input.parse::<Ident>()?;
            self.internal = true;
        }
        Ok(())
    }

    /// `cuX, cuX_v1 | cuX_ptsz`: names with one meaning, then those whose null stream is the thread's own.
    fn names(&mut self, input: ParseStream) -> Result<()> {
        self.names.push(input.parse()?);
        while input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
            self.names.push(input.parse()?);
        }
        if input.peek(Token![|]) {
            input.parse::<Token![|]>()?;
            self.per_thread =
                Punctuated::<Ident, Token![,]>::parse_separated_nonempty(input)?.into_iter().collect();
        }
        Ok(())
    }

    fn params(&mut self, input: ParseStream) -> Result<()> {
        let inner;
        parenthesized!(inner in input);
        while !inner.is_empty() {
            let name: Ident = inner.parse()?;
            inner.parse::<Token![:]>()?;
            let kind: Type = inner.parse()?;
            let extent = if inner.peek(syn::token::Bracket) {
                let content;
                bracketed!(content in inner);
                Some(content.parse()?)
            } else {
                None
            };
            self.params.push(Param { name, kind, extent });
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let at = self.names[0].span();
        if self.internal && (self.names.len() > 1 || !self.per_thread.is_empty()) {
            return Err(Error::new(at, "a record has one name"));
        }
        if self.class == Class::Local && self.number.is_some() {
            return Err(Error::new(at, "a local call has no record and no number"));
        }
        if self.internal && !self.hand {
            return Err(Error::new(
                at,
                "a record that is no CUDA function needs a body on the worker: (hand)",
            ));
        }
        if self.slow && self.class == Class::Post {
            return Err(Error::new(
                at,
                "a post cannot be slow: nothing waits for it, so nothing keeps its order",
            ));
        }
        if self.number.is_none()
            && let Some(param) = self.params.iter().find(|p| p.extent.is_some())
        {
            return Err(Error::new(param.name.span(), "a hand-written call takes plain C types"));
        }
        Ok(())
    }

    /// `(name: Kind [extent]), …` as the callback macros carry it.
    pub fn params_tokens(&self) -> TokenStream {
        let params = self.params.iter().map(|Param { name, kind, extent }| match (extent, self.number) {
            (Some(extent), _) => quote!(#name: #kind [#extent]),
            (None, Some(_)) => quote!(#name: #kind [0]),
            (None, None) => quote!(#name: #kind),
        });
        quote!( #(#params),* )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match syn::parse_str::<List>(text) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn reads_every_form() {
        let list: List = syn::parse_str(
            "local cuCtxGetCurrent(pctx: *mut CUcontext);
             /// Sets bytes.
             12 post cuMemsetD8Async, cuOld | cuMemsetD8Async_ptsz(dst: DevicePtr[n], v: u8, n: usize, s: Stream);
             13 call(slow, hand) record finish(s: Stream);
             hand call cuStreamSynchronize(s: CUstream) using finish;",
        )
        .unwrap();
        let [local, auto, record, hand] = &list.entries[..] else { panic!("four entries") };
        assert_eq!(local.class, Class::Local);
        assert_eq!((auto.number, auto.names.len(), auto.per_thread.len()), (Some(12), 2, 1));
        assert!(auto.params[0].extent.is_some() && auto.params[1].extent.is_none());
        assert!(record.slow && record.hand && record.internal);
        assert_eq!(hand.using[0], "finish");
    }

    #[test]
    fn refuses_what_cannot_be_meant() {
        assert!(error("5 post cuA(); 5 post cuB();").contains("never reused"));
        assert!(error("5 post cuA(); 6 post cuA();").contains("declared twice"));
        assert!(error("post cuA();").contains("number"));
        assert!(error("5 local cuA();").contains("local call has no record"));
        assert!(error("5 post(slow) cuA();").contains("cannot be slow"));
        assert!(error("5 post record a();").contains("needs a body"));
        assert!(error("hand post cuA() using b;").contains("no record is called"));
        assert!(error("5 maybe cuA();").contains("one of local, post, call"));
        assert!(error("hand post cuA(n: u8[4]);").contains("plain C types"));
    }
}

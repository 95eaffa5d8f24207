//! The library that stands in for `libcuda.so.1` and forwards its calls to a pool server.
//!
//! A call goes: [`exports`] (the C function, made from the call list) → [`entry`] (no panic leaves it) → a body in
//! [`calls`], or none where the list says all → [`send`] (a function for each record) → [`cx`] → the link. What the
//! client knows without asking is in [`state`] and [`thread`]; [`session`] sets it up and watches that the server
//! lives.
//!
//! The program is a guest house: before `cuInit` there is no thread, no socket (but one version probe) and no output.
#![deny(unsafe_code)]

mod args;
mod callbacks;
mod calls;
mod code;
mod cptr;
mod cx;
mod entry;
mod exports;
mod host;
mod log;
mod output;
mod parameters;
mod send;
mod session;
mod state;
mod tables;
mod thread;
mod versions;

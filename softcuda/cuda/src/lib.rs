//! A CUDA driver whose device is the CPU.
//!
//! The library is a `libcuda.so.1`: it exports every symbol of `cuda.h`, and a program that is preloaded with it or finds
//! it on its library path runs its kernels on the machine's cores. PTX is compiled just in time by `softcuda-engine`;
//! machine code for real cards cannot be run and is refused as CUDA refuses code for another card.
//!
//! One module a kind of object; `exports` turns CUDA's calls into theirs.

mod allocations;
mod array;
mod attributes;
mod capability;
mod clock;
mod code_cache;
mod config;
mod context;
mod copy;
mod copy_batch;
mod copy_box;
mod current;
mod device;
mod driver;
mod entry;
mod error;
mod event;
mod exports;
mod failures;
mod function;
mod graph;
mod graveyard;
mod green;
mod handles;
mod host;
mod host_call;
mod image;
mod ipc;
mod jit;
mod launch;
mod library;
mod limits;
mod link;
mod log;
mod managed;
mod mappings;
mod memory;
mod memset;
mod module;
mod occupancy;
mod op;
mod peer;
mod per_thread;
mod place;
mod pointer;
mod pool;
mod pool_share;
mod primary;
mod printf;
mod procaddr;
mod progress;
mod reference;
mod share;
mod stream;
mod tables;
mod texture;
mod threads;
mod virtual_memory;
mod words;

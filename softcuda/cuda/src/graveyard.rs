//! Mappings that the program has given back while a kernel runs that may have passed its check of an address just before.
//! They end when no kernel runs.
#![forbid(unsafe_code)]

use crate::driver;
use std::any::Any;
use std::sync::{Mutex, PoisonError};

type Dead = Box<dyn Any + Send>;

static BURIED: Mutex<Vec<Dead>> = Mutex::new(Vec::new());

/// Drops something as soon as no kernel can touch it. Kernels that start from now on must find it gone already.
pub fn bury(dead: Dead) {
    BURIED.lock().unwrap_or_else(PoisonError::into_inner).push(dead);
    sweep();
}

/// Drops what was buried, if now is a good time.
pub fn sweep() {
    let mut buried = BURIED.lock().unwrap_or_else(PoisonError::into_inner);
    if !buried.is_empty() && driver::devices().iter().all(|device| device.memory.is_idle()) {
        buried.clear();
    }
}

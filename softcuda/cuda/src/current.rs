//! The stack of contexts that each thread has; its top is the current one.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::device::Device;
use crate::driver::{self, TABLES};
use crate::error::*;
use std::cell::RefCell;
use std::sync::Arc;

/// A thread's contexts, by handle, and the object of the top one when it was last looked up.
struct Stack {
    handles: Vec<usize>,
    top: Option<Arc<Context>>,
}

thread_local! {
    static STACK: RefCell<Stack> = const { RefCell::new(Stack { handles: Vec::new(), top: None }) };
}

fn with<T>(body: impl FnOnce(&mut Stack) -> T) -> Result<T> {
    // A call from a thread's last destructors finds no stack, and so no context.
    STACK.try_with(|stack| body(&mut stack.borrow_mut())).map_err(|_| CUDA_ERROR_INVALID_CONTEXT)
}

/// The handle of the current context, 0 if there is none.
pub fn handle() -> usize {
    with(|stack| stack.handles.last().copied().unwrap_or(0)).unwrap_or(0)
}

/// The current context.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` if there is none, `CUDA_ERROR_CONTEXT_IS_DESTROYED` if it was destroyed or is a primary
/// context that nobody retains.
pub fn context() -> Result<Arc<Context>> {
    with(|stack| {
        let handle = *stack.handles.last().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if let Some(context) = stack.top.as_ref().filter(|c| c.handle == handle && !c.is_gone()) {
            return Ok(context.clone());
        }
        // A green context's handle leads to the primary one, which may have been reset.
        stack.top = TABLES.contexts.get(handle).filter(|context| !context.is_gone());
        stack.top.clone().ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    })?
}

/// The current context, unless a fault has ended it.
///
/// # Errors
/// As [`context`], and the context's fatal error.
pub fn healthy() -> Result<Arc<Context>> {
    let context = context()?;
    context.fate.check()?;
    Ok(context)
}

/// The device of the current context; without one, the first.
///
/// # Errors
/// `CUDA_ERROR_INVALID_DEVICE` if there is none.
pub fn device() -> Result<Arc<Device>> {
    match context() {
        Ok(context) => Ok(context.device.clone()),
        Err(_) => driver::device(0).cloned(),
    }
}

/// The architecture of [`device`], as fatbins write it: images with nothing for it or older are not for us.
pub fn architecture() -> u32 {
    device().map_or(0, |device| device.capability.architecture())
}

/// Whether a handle is a context's: one that lives, or a primary one, retained or not.
fn check(handle: usize) -> Result {
    let primary = || driver::devices().iter().any(|d| d.primary.handle == handle);
    if TABLES.contexts.get(handle).is_some() || primary() { Ok(()) } else { Err(CUDA_ERROR_INVALID_CONTEXT) }
}

/// `cuCtxSetCurrent`: replaces the top; 0 takes it away.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` for a handle that is none.
pub fn set(handle: usize) -> Result {
    if handle != 0 {
        check(handle)?;
    }
    with(|stack| {
        stack.handles.pop();
        if handle != 0 {
            stack.handles.push(handle);
        }
    })
}

/// `cuCtxPushCurrent`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` for a handle that is none.
pub fn push(handle: usize) -> Result {
    check(handle)?;
    with(|stack| stack.handles.push(handle))
}

/// `cuCtxPopCurrent`: the handle that was on top.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` if there was none.
pub fn pop() -> Result<usize> {
    with(|stack| stack.handles.pop())?.ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Takes the top away if it is this one, as `cuCtxDestroy` does.
pub fn forget_top(handle: usize) {
    let _ = with(|stack| {
        if stack.handles.last() == Some(&handle) {
            stack.handles.pop();
        }
        stack.top = None;
    });
}

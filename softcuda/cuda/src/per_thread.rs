//! The default stream that each thread has of its own in each context (handle 2).
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::stream::{self, Stream};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static STREAMS: RefCell<Vec<Arc<Stream>>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread's stream in a context; made when first asked for. It lives on until its work is done when the
/// thread ends.
pub fn stream(context: &Arc<Context>) -> Arc<Stream> {
    let found = STREAMS.try_with(|streams| {
        let mut streams = streams.borrow_mut();
        streams.retain(|s| s.context.upgrade().is_some_and(|c| !c.is_gone()));
        let mine = streams.iter().find(|s| s.context.as_ptr() == Arc::as_ptr(context)).cloned();
        mine.unwrap_or_else(|| {
            let new = Stream::new(context, stream::PER_THREAD, 0, 0);
            context.adopt(&new);
            // A context that has died does no work that could wait.
            let _ = context.await_what_all_await(&new);
            streams.push(new.clone());
            new
        })
    });
    // While the thread's variables are being destroyed it has no stream of its own any more.
    found.unwrap_or_else(|_| context.legacy().clone())
}

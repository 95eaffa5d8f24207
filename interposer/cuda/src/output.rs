//! Text that kernels print. It is fetched when a call that waited has been answered, and written to C's `stdout` (what failed
//! assertions say: `stderr`), so that it keeps its place among the program's own lines.

#![allow(unsafe_code)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cx::Cx;
use crate::state::objects::lock;

/// How much of the output was written here.
#[derive(Debug, Default)]
pub struct Output {
    taken: AtomicU64,
    writing: Mutex<()>,
}

/// Writes what kernels have printed since the last time. The calling thread must hold no chunk.
#[inline]
pub fn take(cx: Cx) {
    if cx.session.link.output_written() > cx.session.output.taken.load(Relaxed) {
        fetch(cx);
    }
}

#[cold]
fn fetch(cx: Cx) {
    let output = &cx.session.output;
    // A thread that comes second waits, so that its own call does not return before its text is out.
    let _writing = lock(&output.writing);
    let (mut stream, mut text) = (0, Vec::new());
    while cx.session.link.output_written() > output.taken.load(Relaxed) {
        // A quiet call: its own answer must not come here again.
        if send_take(cx, &mut stream, &mut text).is_err() || text.is_empty() {
            return;
        }
        output.taken.fetch_add(text.len() as u64, Relaxed);
        write(stream, &text);
    }
}

fn send_take(cx: Cx, stream: &mut u32, text: &mut Vec<u8>) -> crate::code::Answer {
    use gpupool_protocol::api::numbers;
    use gpupool_protocol::wire::codec::Wire;
    let pending = cx.begin(numbers::take_output, true, 0, |_| ())?;
    pending.finish_quietly(|from| {
        *stream = u32::get(from)?;
        *text = Vec::get(from)?;
        from.end()
    })
}

unsafe extern "C" {
    /// C's standard output, as glibc names it.
    static stdout: *mut libc::FILE;
    /// C's standard error.
    static stderr: *mut libc::FILE;
}

fn write(stream: u32, text: &[u8]) {
    // SAFETY: glibc's own streams and a buffer of this length. Reading the pointers does not race with anything that a
    // correct program does.
    unsafe {
        let file = if stream == 2 { stderr } else { stdout };
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), file);
        libc::fflush(file);
    }
}

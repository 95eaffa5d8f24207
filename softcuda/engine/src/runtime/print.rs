//! What kernels print: `vprintf` and failed assertions.

use super::block::{fail, grid_of};
use super::context::Thread;
use crate::error::FaultKind;
use crate::memory::Memory;
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::Mutex;

/// As much as CUDA keeps between two flushes unless a program wants another size (`CU_LIMIT_PRINTF_FIFO_SIZE`).
const LIMIT: usize = 1 << 20;
/// The longest text that is read from device memory.
const MAX_STRING: usize = 64 << 10;

/// What was printed and not taken yet: what each call printed, oldest first. When there is no room the oldest goes, as in CUDA's buffer
/// (CUDA C++ Programming Guide, "Limitations" of formatted output).
pub struct Output(Mutex<Fifo>);

#[derive(Default)]
struct Fifo {
    text: VecDeque<u8>,
    /// Bytes of each call's text; none is empty, so that they have a bound as well.
    lengths: VecDeque<u32>,
    limit: usize,
}

impl Default for Output {
    fn default() -> Self {
        Output(Mutex::new(Fifo { limit: LIMIT, ..Fifo::default() }))
    }
}

impl Output {
    fn lock(&self) -> std::sync::MutexGuard<'_, Fifo> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn push(&self, text: &[u8]) {
        let Ok(length @ 1..) = u32::try_from(text.len()) else { return };
        let mut fifo = self.lock();
        fifo.text.extend(text);
        fifo.lengths.push_back(length);
        fifo.shrink();
    }

    /// Takes everything.
    pub fn take(&self) -> Vec<u8> {
        let mut fifo = self.lock();
        fifo.lengths.clear();
        std::mem::take(&mut fifo.text).into()
    }

    /// Keeps so many bytes from now on.
    pub fn limit(&self, bytes: usize) {
        let mut fifo = self.lock();
        fifo.limit = bytes;
        fifo.shrink();
    }
}

impl Fifo {
    fn shrink(&mut self) {
        while self.text.len() > self.limit {
            let Some(oldest) = self.lengths.pop_front() else { break };
            self.text.drain(..oldest as usize);
        }
    }
}

/// A string in memory that a kernel may touch; `None` if it may not.
fn string(memory: &Memory, addr: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while out.len() < MAX_STRING {
        let at = addr.wrapping_add(out.len() as u64);
        if !memory.permits(at, 1, false) {
            return None;
        }
        // SAFETY: just checked; a byte at a time, atomically, since kernels may write it meanwhile.
        let c = unsafe { std::sync::atomic::AtomicU8::from_ptr(at as *mut u8) };
        match c.load(std::sync::atomic::Ordering::Relaxed) {
            0 => break,
            c => out.push(c),
        }
    }
    Some(out)
}

/// `vprintf(format, arguments)`: returns the number of arguments, as CUDA does, or -1.
///
/// # Safety
/// `t` is the running thread, `args` the two pointers of the call, `ret` room for its result.
pub unsafe extern "C" fn vprintf(t: *mut Thread, args: *const u64, ret: *mut i32, line: u32) {
    // SAFETY: as promised.
    unsafe {
        let (format, list) = (args.read(), args.add(1).read());
        let done = {
            let grid = grid_of(t);
            let text = string(&grid.memory, format).ok_or_else(|| format!("printf: no text at {format:#x}"));
            text.and_then(|f| print(&grid.memory, &f, list)).map(|(text, count)| {
                grid.realm.output.push(&text);
                count
            })
        };
        match done {
            Ok(count) => *ret = count,
            Err(what) => fail(t, FaultKind::IllegalAddress, line, what),
        }
    }
}

/// Reads the argument buffer: each argument at a multiple of its size.
struct Arguments<'a> {
    memory: &'a Memory,
    at: u64,
    /// Where the first argument would be that lies in no memory of the kernel's.
    missing: Option<u64>,
}

impl Arguments<'_> {
    fn next(&mut self, size: u64) -> u64 {
        let at = self.at.wrapping_add(size - 1) & !(size - 1);
        self.at = at.wrapping_add(size);
        if !self.memory.permits(at, size, false) {
            self.missing.get_or_insert(at);
            return 0;
        }
        // SAFETY: just checked, and aligned.
        unsafe {
            match size {
                4 => u64::from((at as *const u32).read_volatile()),
                _ => (at as *const u64).read_volatile(),
            }
        }
    }
}

/// The text, and how many arguments it took; or what is wrong with the list.
fn print(memory: &Memory, format: &[u8], list: u64) -> Result<(Vec<u8>, i32), String> {
    let mut args = Arguments { memory, at: list, missing: None };
    let (mut out, mut count, mut i) = (Vec::new(), 0, 0);
    while i < format.len() && out.len() < LIMIT {
        if format[i] != b'%' {
            out.push(format[i]);
            i += 1;
            continue;
        }
        let start = i;
        i += 1;
        let mut spec = vec![b'%'];
        while i < format.len() && b"-+ #0123456789.*".contains(&format[i]) {
            if format[i] == b'*' {
                let n = (args.next(4) as i32).clamp(-4096, 4096);
                spec.extend_from_slice(n.to_string().as_bytes());
                count += 1;
            } else {
                spec.push(format[i]);
            }
            i += 1;
        }
        let mut long = 0;
        let mut short = 0;
        while i < format.len() && b"hljztL".contains(&format[i]) {
            match format[i] {
                b'h' => short += 1,
                _ => long += 1,
            }
            i += 1;
        }
        let Some(&kind) = format.get(i) else {
            out.extend_from_slice(&format[start..]);
            break;
        };
        i += 1;
        if kind == b'%' {
            out.push(b'%');
            continue;
        }
        count += 1;
        match kind {
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' | b'c' => {
                let v = args.next(if long > 0 && kind != b'c' { 8 } else { 4 });
                let v = narrow(v, long, short, matches!(kind, b'd' | b'i'));
                spec.extend_from_slice(if kind == b'c' { b"c" } else { b"ll" });
                if kind != b'c' {
                    spec.push(kind);
                }
                formatted(&mut out, &spec, Value::Int(v));
            }
            b'p' => {
                let v = args.next(8);
                formatted(&mut out, b"%p", Value::Int(v));
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                spec.push(kind);
                // A card's NaNs have no sign; this CPU's have.
                let v = f64::from_bits(args.next(8));
                let v = if v.is_nan() { f64::NAN } else { v };
                formatted(&mut out, &spec, Value::Float(v));
            }
            b's' => {
                spec.push(b's');
                let text = match args.next(8) {
                    0 => Some(b"(null)".to_vec()),
                    p => string(memory, p),
                };
                formatted(&mut out, &spec, Value::Text(text.unwrap_or_default()));
            }
            // Unknown: CUDA prints it as it stands.
            _ => {
                count -= 1;
                out.extend_from_slice(&format[start..i]);
            }
        }
    }
    match args.missing {
        None => Ok((out, count)),
        Some(at) => Err(format!("printf: no argument at {at:#x}")),
    }
}

fn narrow(v: u64, long: i32, short: i32, signed: bool) -> u64 {
    match (long > 0, short, signed) {
        (true, ..) => v,
        (_, 0, true) => v as i32 as u64,
        (_, 0, false) => u64::from(v as u32),
        (_, 1, true) => v as i16 as u64,
        (_, 1, false) => u64::from(v as u16),
        (_, _, true) => v as i8 as u64,
        (_, _, false) => u64::from(v as u8),
    }
}

enum Value {
    Int(u64),
    Float(f64),
    Text(Vec<u8>),
}

/// One conversion by the C library, whose format it is. Widths and precisions are cut to 999: the library makes a number of
/// so many places on the stack, and that is the small one of a thread (see `HELPER_ROOM` of the code generator).
fn formatted(out: &mut Vec<u8>, spec: &[u8], value: Value) {
    let spec = cut_numbers(spec);
    let Ok(spec) = CString::new(spec) else { return };
    let text = match &value {
        Value::Text(t) => CString::new(t.clone()).unwrap_or_default(),
        _ => CString::default(),
    };
    let size = 3000 + text.as_bytes().len();
    let mut buffer = vec![0u8; size];
    let p = buffer.as_mut_ptr().cast();
    // SAFETY: `spec` holds exactly one conversion, of the kind of the value, and the buffer's size is given.
    let n = unsafe {
        match value {
            Value::Int(v) => libc::snprintf(p, size, spec.as_ptr(), v),
            Value::Float(v) => libc::snprintf(p, size, spec.as_ptr(), v),
            Value::Text(_) => libc::snprintf(p, size, spec.as_ptr(), text.as_ptr()),
        }
    };
    out.extend_from_slice(&buffer[..(n.max(0) as usize).min(size - 1)]);
}

fn cut_numbers(spec: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(spec.len());
    let mut i = 0;
    while i < spec.len() {
        let n = spec[i..].iter().take_while(|c| c.is_ascii_digit()).count();
        if n > 3 {
            // Leading zeros are flags; four digits and more are cut.
            out.extend_from_slice(b"999");
            i += n;
        } else {
            out.extend_from_slice(&spec[i..i + n.max(1)]);
            i += n.max(1);
        }
    }
    out
}

/// `__assertfail(message, file, line, function, char size)`.
///
/// # Safety
/// `t` is the running thread, `args` the arguments of the call as declared.
pub unsafe extern "C" fn assert_fail(t: *mut Thread, args: *const u8, _ret: *mut u8, line: u32) {
    // SAFETY: message, file: 64 bits at 0 and 8; line: 32 bits at 16; function: 64 bits at 24.
    unsafe {
        let word = |at: usize| args.add(at).cast::<u64>().read_unaligned();
        let source_line = args.add(16).cast::<u32>().read_unaligned();
        let ([x, y, z], [i, j, k]) = ((*(*t).block).ctaid, (*t).tid);
        {
            let grid = grid_of(t);
            let text = |at| {
                let s = string(&grid.memory, word(at)).unwrap_or_default();
                String::from_utf8_lossy(&s).into_owned()
            };
            let (message, file, function) = (text(0), text(8), text(24));
            let all = format!(
                "{file}:{source_line}: {function}: block: [{x},{y},{z}], thread: [{i},{j},{k}] Assertion `{message}` failed.\n"
            );
            grid.realm.complaints.push(all.as_bytes());
        }
        fail(t, FaultKind::Assert, line, "device-side assertion failed".to_string())
    }
}

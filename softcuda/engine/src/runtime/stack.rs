//! Native stacks for generated code, and the switch between them.
//!
//! Only threads of this crate, and callers inside of [`crate::Engine::run`], ever switch, and always back before they return. Nothing
//! unwinds through a switch, and no helper keeps thread-local state over one.

use std::arch::naked_asm;
use std::io;
use std::sync::{Mutex, PoisonError};

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "softcuda-engine switches stacks by x86-64 code; other processors need their own `switch` and `start`"
);

/// Saves this stack's state, puts its pointer to `save`, and goes on where `to` was saved.
///
/// # Safety
/// `to` must have been saved by `switch` or made by [`Stack::prepare`], on a stack that is still there and that nobody runs on.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn switch(save: *mut usize, to: usize) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        // Not `ret`: the return predictor knows another stack's calls.
        "pop rcx",
        "jmp rcx",
    )
}

/// Where a new stack begins: calls r13 with r12, which does not return.
#[unsafe(naked)]
unsafe extern "sysv64" fn start() {
    naked_asm!("mov rdi, r12", "call r13", "ud2")
}

const GUARD: usize = 4096;
/// Stacks are mapped in groups.
const GROUP: usize = 32;

/// One stack; goes back to its pool by [`StackPool::give`].
#[derive(Debug)]
pub struct Stack {
    low: usize,
    size: usize,
}

impl Stack {
    /// The lowest usable address.
    pub fn low(&self) -> usize {
        self.low
    }

    /// Lays the stack out so that a switch to the returned pointer calls `f(arg)`, which must not return. `number` staggers
    /// the tops: stacks at a stride of whole pages would fight for the same cache sets.
    pub fn prepare(&self, number: u32, f: unsafe extern "sysv64" fn(usize), arg: usize) -> usize {
        let stagger = 192 * (number as usize % 32);
        let top = ((self.low + self.size) & !63) - stagger;
        let words: [usize; 7] = [0, 0, f as *const () as usize, arg, 0, 0, start as *const () as usize];
        let sp = top - size_of_val(&words);
        // SAFETY: the words lie inside of this stack (which is at least 16 KiB), and nobody runs on it.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), sp as *mut usize, words.len()) };
        sp
    }
}

/// Stacks of a few sizes that are used again and again.
#[derive(Default)]
pub struct StackPool {
    state: Mutex<Pools>,
}

#[derive(Default)]
struct Pools {
    free: Vec<Stack>,
    mapped: Vec<(usize, usize)>,
}

/// The size class for a need in bytes; `None`: no sane kernel needs that much.
pub fn size_class(need: usize) -> Option<usize> {
    [64 << 10, 256 << 10, 1 << 20, 8 << 20].into_iter().find(|c| *c >= need)
}

impl StackPool {
    /// Takes `count` stacks of `size` bytes (a [`size_class`]).
    pub fn take(&self, count: usize, size: usize) -> io::Result<Vec<Stack>> {
        let mut s = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = Vec::with_capacity(count);
        let mut i = s.free.len();
        while i > 0 && out.len() < count {
            i -= 1;
            if s.free[i].size == size {
                out.push(s.free.swap_remove(i));
            }
        }
        while out.len() < count {
            let group = if count == 1 { 1 } else { GROUP };
            match map_group(group, size) {
                Ok((base, len)) => {
                    s.mapped.push((base, len));
                    out.extend((0..group).map(|i| Stack { low: base + i * (size + GUARD) + GUARD, size }));
                }
                Err(e) => {
                    s.free.append(&mut out);
                    return Err(e);
                }
            }
        }
        let rest = out.split_off(count);
        s.free.extend(rest);
        Ok(out)
    }

    /// Puts stacks back that nobody runs on any more.
    pub fn give(&self, stacks: Vec<Stack>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).free.extend(stacks);
    }
}

fn map_group(count: usize, size: usize) -> io::Result<(usize, usize)> {
    let len = count * (size + GUARD);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping where the system chooses.
    let p =
        unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    for i in 0..count {
        let guard = p as usize + i * (size + GUARD);
        // SAFETY: a page of the mapping just made, which nobody uses yet.
        if unsafe { libc::mprotect(guard as *mut _, GUARD, libc::PROT_NONE) } != 0 {
            let e = io::Error::last_os_error();
            // SAFETY: as above.
            unsafe { libc::munmap(p, len) };
            return Err(e);
        }
    }
    Ok((p as usize, len))
}

impl Drop for StackPool {
    fn drop(&mut self) {
        let s = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for &(base, len) in &s.mapped {
            // SAFETY: mappings of this pool; whoever runs on one of its stacks holds the pool.
            unsafe { libc::munmap(base as *mut _, len) };
        }
    }
}

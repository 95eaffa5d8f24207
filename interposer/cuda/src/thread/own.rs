//! The few values that every call reads of its thread.
//!
//! A library that may be loaded late finds its thread's variables by a function call, some 25 instructions each time, unless
//! it takes part of a reserve that the loader may not have (and then the library is not loaded at all). On x86 there is a
//! third way, thread-local descriptors: the loader chooses at run time, and the usual choice takes five instructions.
//! The compiler cannot be told to use it, so these variables are declared here.

#![allow(unsafe_code)]

use std::cell::Cell;

/// A thread's own values; all are zero when it begins. Without a destructor: they are there as long as the thread runs any
/// code, also in the destructors of others.
#[repr(C)]
pub struct Own {
    /// The thread's lane, or 0 before its first call.
    pub lane: Cell<u32>,
    /// CUstreamCaptureMode.
    pub capture_mode: Cell<u32>,
    /// The current context's handle, or 0.
    pub context: Cell<u64>,
    /// Whether the thread runs a host function. Not zero: it does.
    pub in_callback: Cell<u64>,
}

#[cfg(target_arch = "x86_64")]
mod found {
    use super::Own;

    const _: () = assert!(size_of::<Own>() == 24 && align_of::<Own>() == 8);

    std::arch::global_asm!(
        ".pushsection .tbss.gpupool_own,\"awT\",@nobits",
        ".p2align 3",
        ".globl gpupool_own",
        ".hidden gpupool_own",
        ".type gpupool_own,@object",
        ".size gpupool_own,24",
        "gpupool_own:",
        ".zero 24",
        ".popsection",
    );

    /// The calling thread's values.
    #[inline(always)]
    pub fn own() -> *const Own {
        let at: *const Own;
        // SAFETY: the sequence that the psABI lays down for descriptors. The descriptor's function preserves all registers but
        // `rax`, so that a caller's arguments stay where they are; loaders were found that forget the vector registers, so
        // those count as changed. `rax` is the offset from the thread pointer, which stands at `fs:0`.
        unsafe {
            std::arch::asm!(
                "leaq gpupool_own@tlsdesc(%rip), %rax",
                "call *gpupool_own@tlscall(%rax)",
                "addq %fs:0, %rax",
                out("rax") at,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,
                out("xmm20") _, out("xmm21") _, out("xmm22") _, out("xmm23") _,
                out("xmm24") _, out("xmm25") _, out("xmm26") _, out("xmm27") _,
                out("xmm28") _, out("xmm29") _, out("xmm30") _, out("xmm31") _,
                out("k0") _, out("k1") _, out("k2") _, out("k3") _,
                out("k4") _, out("k5") _, out("k6") _, out("k7") _,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(att_syntax),
            );
        }
        at
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod found {
    use std::cell::Cell;

    use super::Own;

    thread_local! {
        static OWN: Own = const {
            Own { lane: Cell::new(0), capture_mode: Cell::new(0), context: Cell::new(0), in_callback: Cell::new(0) }
        };
    }

    /// The calling thread's values.
    #[inline(always)]
    pub fn own() -> *const Own {
        OWN.with(std::ptr::from_ref)
    }
}

/// Gives `body` the calling thread's values.
#[inline(always)]
pub fn with<R>(body: impl FnOnce(&Own) -> R) -> R {
    // SAFETY: they are this thread's own, zero bytes are a valid `Own`, and they live as long as the thread; `Own` is not
    // `Sync`, so that no reference gets to another thread.
    body(unsafe { &*found::own() })
}

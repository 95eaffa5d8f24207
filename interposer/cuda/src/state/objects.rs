//! The objects behind handles. All fields can be read and written by any thread at any time ([`super::table`]).

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::image::{Image, Kernel};
use super::watch::Progress;
use crate::session::Limits;

/// Locks whatever state another thread left, since no code here leaves it half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context.
#[derive(Debug, Default)]
pub struct Context {
    /// Its device's ordinal, as the program counts.
    pub device: AtomicI32,
    /// What every launch on that device is checked against; never null while the handle is valid.
    pub limits: Known<Limits>,
    /// Flags of its creation.
    pub flags: AtomicU32,
    /// Whether it is its device's primary context.
    pub primary: AtomicBool,
    /// Whether it exists on the device: created, or (a primary one) retained.
    pub active: AtomicBool,
    /// What cuCtxGetId answers.
    pub id: AtomicU64,
    /// An error that stays (a fault of a kernel), or 0.
    pub sticky: AtomicU32,
    /// The work that its legacy stream waits for.
    pub shared: Progress,
    /// Non-blocking streams that were destroyed, perhaps with work under way.
    pub left: Progress,
}

/// A stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Its context.
    pub context: AtomicU64,
    /// The object of that context, so that posting work needs no second look-up.
    pub context_object: Known<Context>,
    /// CU_STREAM_NON_BLOCKING or 0.
    pub flags: AtomicU32,
    /// Its priority.
    pub priority: AtomicI32,
    /// What cuStreamGetId answers.
    pub id: AtomicU64,
    /// What was posted to it, and what of that is done.
    pub progress: Progress,
}

/// An event.
#[derive(Debug, Default)]
pub struct Event {
    /// Its context.
    pub context: AtomicU64,
    /// Flags of its creation.
    pub flags: AtomicU32,
    /// How often it was recorded, and which of the records are done.
    pub progress: Progress,
}

/// A module, or the module of a library in one context.
#[derive(Debug, Default)]
pub struct Module {
    /// Its context.
    pub context: AtomicU64,
    /// The library that it belongs to, or 0.
    pub library: AtomicU64,
    /// What is in it.
    pub inside: Mutex<Inside>,
}

/// A library.
#[derive(Debug, Default)]
pub struct Library {
    /// What is in it. Its variables are looked up a context.
    pub inside: Mutex<Inside>,
    /// Its modules, by context.
    pub modules: Mutex<HashMap<u64, u64>>,
}

/// What is known of the inside of a module or library.
#[derive(Debug, Default)]
pub struct Inside {
    /// Whether NVIDIA's runtime loaded it.
    pub wrapped: bool,
    /// Kernels, as the worker listed them.
    pub image: Option<&'static Image>,
    /// Handles of kernels that were asked for, by their index.
    pub functions: HashMap<u32, u64>,
    /// Variables that were asked for: address and size, by context and name.
    pub variables: HashMap<(u64, String), (u64, u64)>,
}

/// A kernel, as `CUfunction` or `CUkernel`.
#[derive(Debug, Default)]
pub struct Function {
    /// The module or library that it comes from.
    pub owner: AtomicU64,
    /// Whether `owner` is a library.
    pub of_library: AtomicBool,
    /// Whether NVIDIA's runtime loaded it; see [`cuda_abi::errors::INVALID_CONFIGURATION`].
    pub from_runtime: AtomicBool,
    /// What the worker said of it; never null while the handle is valid.
    pub kernel: Known<Kernel>,
    /// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES now.
    pub max_dynamic_shared: AtomicI32,
    /// Whether the program has set any attribute.
    pub any_set: AtomicBool,
    /// Attributes that the program has set.
    pub set: Mutex<Vec<(u32, i32)>>,
    /// The worker's last answer to how many blocks run at once.
    pub resident: Mutex<Resident>,
}

/// How many blocks of a kernel run at once on a multiprocessor.
#[derive(Debug, Default, Clone, Copy)]
pub struct Resident {
    /// Threads a block; 0: not asked yet.
    pub threads: u64,
    /// Bytes of dynamic shared memory a block.
    pub dynamic_shared: u32,
    /// The blocks.
    pub blocks: i32,
}

/// A pointer to something that lives as long as the process.
#[derive(Debug)]
pub struct Known<T: 'static>(AtomicPtr<T>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self::none()
    }
}

impl<T> Known<T> {
    /// Points at nothing.
    pub const fn none() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Points at nothing from now on. Async-signal-safe.
    pub fn clear(&self) {
        self.0.store(std::ptr::null_mut(), SeqCst);
    }
}

impl<T: Sync> Known<T> {
    /// Sets it. Whoever sees it later sees what it points at as it was now.
    pub fn set(&self, known: &'static T) {
        self.0.store(std::ptr::from_ref(known).cast_mut(), SeqCst);
    }

    /// What it points at, if it was ever set.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null or from `set`: a shared reference, valid for ever.
        unsafe { self.0.load(Acquire).as_ref() }
    }
}

/// A memory pool.
#[derive(Debug, Default)]
pub struct Pool {
    /// Its device.
    pub device: AtomicI32,
}

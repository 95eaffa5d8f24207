//! The private tables that runtimes get by `cuGetExportTable`.
//!
//! Which tables a libcuda must give, which it must refuse and what their slots do was measured on NVIDIA's runtime
//! libraries 11.8 to 13.5 and on the libraries built on them: given are exactly the tables below, in all of them the
//! slots that nothing was seen to use answer success and do nothing, and every other table is refused.

use crate::context_storage::{Destructor, Storage};
use crate::integrity::{self, DeviceIdentity, Question};
use crate::sys::{CUcontext, CUdevice, CUmodule, CUresult, CUuuid};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

/// What the tables need from the library that gives them. A panic in any of these becomes `CUDA_ERROR_UNKNOWN`.
pub trait Host: Sync {
    /// As from `cuDriverGetVersion`.
    fn driver_version(&self) -> i32;

    /// Every device, in the order of its ordinals, as `cuDeviceGetUuid` and the PCI attributes show it.
    fn devices(&self) -> Vec<DeviceIdentity>;

    /// The handle of a device's primary context, without retaining it (the context need not be active).
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` and the like.
    fn primary_context(&self, device: CUdevice) -> Result<CUcontext, CUresult>;

    /// The calling thread's current context, null if there is none. On the path of almost every call: a plain load.
    fn current_context(&self) -> CUcontext;

    /// Loads the module of a fatbin wrapper into the current context (runtimes of CUDA 11).
    ///
    /// # Errors
    /// Those of `cuModuleLoadData`.
    ///
    /// # Safety
    /// `image` is what `cuModuleLoadData` takes.
    unsafe fn load_cubin(&self, image: *const c_void) -> Result<CUmodule, CUresult>;

    /// Unloads what [`Host::load_cubin`] made of this image (runtimes of CUDA 11, at exit).
    fn unload_cubin(&self, image: *const c_void) -> CUresult;

    /// Loads the just-in-time compiler, if that takes a step of its own.
    fn load_compilers(&self) -> CUresult {
        CUresult::CUDA_SUCCESS
    }
}

/// A table: words that are sizes or functions.
#[repr(transparent)]
struct Table<const N: usize>([*const c_void; N]);

// SAFETY: the words are never written, and what they point at is code or nothing.
unsafe impl<const N: usize> Sync for Table<N> {}

static HOST: OnceLock<&'static dyn Host> = OnceLock::new();
static STORAGE: Storage = Storage::new();

/// Runs the destructors of all values that hang on a context. To be called by the library when it destroys or resets
/// the context, before the handle can mean another one.
pub fn context_destroyed(context: CUcontext) {
    let _ = catch_unwind(|| STORAGE.context_destroyed(context.addr()));
}

/// The table with this UUID; `None` means `CUDA_ERROR_NOT_FOUND`. `host` is remembered at the first call: a process has
/// one libcuda.
pub fn get(uuid: &CUuuid, host: &'static dyn Host) -> Option<*const c_void> {
    HOST.get_or_init(|| host);
    let id = u128::from_be_bytes(uuid.bytes.map(|b| b as u8));
    let table: *const c_void = match id {
        0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9 => (&raw const CUDART_INTERFACE).cast(),
        0xa094798c_2e74_2e74_93f2_0800200c0a66 => (&raw const TOOLS_RUNTIME_CALLBACK_HOOKS).cast(),
        0x42d85a81_23f6_cb47_8298_f6e78a3aecdc => (&raw const TOOLS_TLS).cast(),
        0xc693336e_1121_df11_a8c3_68f355d89593 => (&raw const CONTEXT_LOCAL_STORAGE).cast(),
        0x263e8860_7cd2_6143_92f6_bbd5006dfa7e => (&raw const CONTEXT_CHECKS).cast(),
        0xd4082055_bde6_704b_8d34_ba123c66e1f2 => (&raw const INTEGRITY_CHECK).cast(),
        0x21318c60_9714_3248_8ca6_41ff7324c8f2 => (&raw const TABLE_21318C60).cast(),
        0x1734dc26_800d_4745_8726_c0f1e7dd8bca => (&raw const TABLE_1734DC26).cast(),
        _ => return None,
    };
    Some(table)
}

const NOTHING: *const c_void = nothing as *const c_void;

/// The word at a table's start that says how many bytes it has.
const fn bytes<const N: usize>() -> *const c_void {
    ptr::without_provenance(N * size_of::<*const c_void>())
}

static CUDART_INTERFACE: Table<13> = Table([
    bytes::<13>(),
    get_module_from_cubin as *const c_void,
    get_primary_context as *const c_void,
    NOTHING,
    NOTHING,
    NOTHING,
    get_module_from_cubin_ext1 as *const c_void,
    unload_cubin as *const c_void,
    get_module_from_cubin_ext2 as *const c_void,
    NOTHING,
    NOTHING,
    NOTHING,
    load_compilers as *const c_void,
]);

static TOOLS_RUNTIME_CALLBACK_HOOKS: Table<7> = Table([
    bytes::<7>(),
    NOTHING,
    enabled_callbacks as *const c_void,
    NOTHING,
    NOTHING,
    NOTHING,
    enabled_callbacks_2 as *const c_void,
]);

static TOOLS_TLS: Table<4> = Table([bytes::<4>(), NOTHING, NOTHING, NOTHING]);

static CONTEXT_LOCAL_STORAGE: Table<4> = Table([
    storage_put as *const c_void,
    storage_delete as *const c_void,
    storage_get as *const c_void,
    NOTHING,
]);

static CONTEXT_CHECKS: Table<4> = Table([bytes::<4>(), NOTHING, context_check as *const c_void, NOTHING]);

static INTEGRITY_CHECK: Table<3> = Table([bytes::<3>(), integrity_check as *const c_void, NOTHING]);

/// Asked by runtimes from 13.4 and by cuBLAS, cuDNN and cuFFT; the highest slot named anywhere is 51.
static TABLE_21318C60: Table<53> = {
    let mut words = [NOTHING; 53];
    words[0] = bytes::<53>();
    words[4] = flag_of as *const c_void;
    Table(words)
};

/// Asked by cuBLASLt, which calls slot 4 without looking whether it got the table.
static TABLE_1734DC26: Table<8> = {
    let mut words = [NOTHING; 8];
    words[0] = bytes::<8>();
    Table(words)
};

/// A slot must never unwind into C.
fn guarded(body: impl FnOnce(&'static dyn Host) -> CUresult) -> CUresult {
    let Some(host) = HOST.get() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    catch_unwind(AssertUnwindSafe(|| body(*host))).unwrap_or(CUresult::CUDA_ERROR_UNKNOWN)
}

/// Writes a value where a C caller wants it.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn give<T>(out: *mut T, value: Result<T, CUresult>) -> CUresult {
    if out.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    match value {
        Ok(value) => {
            // SAFETY: not null, and the caller vouches for it.
            unsafe { out.write(value) };
            CUresult::CUDA_SUCCESS
        }
        Err(error) => error,
    }
}

extern "C" fn nothing() -> CUresult {
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn get_primary_context(out: *mut CUcontext, device: CUdevice) -> CUresult {
    // SAFETY: the runtime passes the place of a context handle.
    guarded(|host| unsafe { give(out, host.primary_context(device)) })
}

unsafe extern "C" fn get_module_from_cubin(out: *mut CUmodule, image: *const c_void) -> CUresult {
    if image.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the runtime passes the place of a module handle and a fatbin wrapper.
    guarded(|host| unsafe { give(out, host.load_cubin(image)) })
}

unsafe extern "C" fn get_module_from_cubin_ext1(
    out: *mut CUmodule,
    image: *const c_void,
    _: *const c_void,
    _: *const c_void,
    _: u32,
) -> CUresult {
    // SAFETY: the same call; the further arguments were only ever seen to be zero.
    unsafe { get_module_from_cubin(out, image) }
}

unsafe extern "C" fn get_module_from_cubin_ext2(
    image: *const c_void,
    out: *mut CUmodule,
    _: *const c_void,
    _: *const c_void,
    _: u32,
) -> CUresult {
    // SAFETY: the same call with its first two arguments exchanged.
    unsafe { get_module_from_cubin(out, image) }
}

extern "C" fn unload_cubin(image: *const c_void) -> CUresult {
    guarded(|host| host.unload_cubin(image))
}

extern "C" fn load_compilers() -> CUresult {
    guarded(Host::load_compilers)
}

/// Whether a tool wants to be called at each runtime function: an array of zeros. Runtimes refuse fewer than about 600
/// entries and accept 1024.
const CALLBACKS: usize = 1024;

unsafe extern "C" fn enabled_callbacks(array: *mut *const AtomicU32, length: *mut usize) -> CUresult {
    static ENABLED: [AtomicU32; CALLBACKS] = [const { AtomicU32::new(0) }; CALLBACKS];
    // SAFETY: the runtime passes the places of a pointer and a number.
    unsafe { give_array(array, length, &ENABLED) }
}

unsafe extern "C" fn enabled_callbacks_2(array: *mut *const AtomicU32, length: *mut usize) -> CUresult {
    static ENABLED: [AtomicU32; CALLBACKS] = [const { AtomicU32::new(0) }; CALLBACKS];
    // SAFETY: as above.
    unsafe { give_array(array, length, &ENABLED) }
}

/// # Safety
/// Both places are null or may be written.
unsafe fn give_array(
    array: *mut *const AtomicU32,
    length: *mut usize,
    values: &'static [AtomicU32; CALLBACKS],
) -> CUresult {
    if array.is_null() || length.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, and the caller vouches for them. Atomics, so that a tool may write to the array.
    unsafe {
        array.write(values.as_ptr());
        length.write(CALLBACKS);
    }
    CUresult::CUDA_SUCCESS
}

/// The handle that a slot's context argument means: null is the current context.
fn context_or_current(host: &dyn Host, context: CUcontext) -> Result<usize, CUresult> {
    let context = if context.is_null() { host.current_context() } else { context };
    if context.is_null() { Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) } else { Ok(context.addr()) }
}

type StorageDestructor = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void);

unsafe extern "C" fn storage_put(
    context: CUcontext,
    key: *mut c_void,
    value: *mut c_void,
    destructor: Option<StorageDestructor>,
) -> CUresult {
    guarded(|host| match context_or_current(host, context) {
        Ok(context) => {
            let destructor = destructor.map(|function| -> Destructor {
                std::sync::Arc::new(move |context, key, value| {
                    // SAFETY: the runtime gave the function for just these three, and they are passed on unchanged.
                    unsafe {
                        function(
                            ptr::with_exposed_provenance_mut(context),
                            ptr::with_exposed_provenance_mut(key),
                            ptr::with_exposed_provenance_mut(value),
                        );
                    }
                })
            });
            STORAGE.put(context, key.expose_provenance(), value.expose_provenance(), destructor);
            CUresult::CUDA_SUCCESS
        }
        Err(error) => error,
    })
}

extern "C" fn storage_delete(context: CUcontext, key: *mut c_void) -> CUresult {
    guarded(|host| match context_or_current(host, context) {
        Ok(context) if STORAGE.delete(context, key.addr()) => CUresult::CUDA_SUCCESS,
        Ok(_) => CUresult::CUDA_ERROR_INVALID_HANDLE,
        Err(error) => error,
    })
}

unsafe extern "C" fn storage_get(out: *mut *mut c_void, context: CUcontext, key: *mut c_void) -> CUresult {
    guarded(|host| {
        let value = context_or_current(host, context)
            .and_then(|context| STORAGE.get(context, key.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE));
        // SAFETY: the runtime passes the place of a pointer.
        unsafe { give(out, value.map(ptr::with_exposed_provenance_mut)) }
    })
}

unsafe extern "C" fn context_check(_: CUcontext, number: *mut u32, pointer: *mut *const c_void) -> CUresult {
    // SAFETY: the runtime passes places for both, or null.
    unsafe {
        if !number.is_null() {
            number.write(0);
        }
        if !pointer.is_null() {
            pointer.write(ptr::null());
        }
    }
    CUresult::CUDA_SUCCESS
}

/// Slot 4 of 21318C60: whether its argument is not zero.
unsafe extern "C" fn flag_of(input: usize, out: *mut u32) -> CUresult {
    if !out.is_null() {
        // SAFETY: not null; libraries pass the place of an int.
        unsafe { out.write(u32::from(input != 0)) };
    }
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn integrity_check(version: u32, unix_seconds: u64, out: *mut [u64; 2]) -> CUresult {
    guarded(|host| {
        // SAFETY: pthread_self has no requirement.
        let thread = unsafe { libc::pthread_self() };
        let question = Question {
            driver_version: host.driver_version() as u32,
            version,
            process: std::process::id(),
            thread: thread as u32,
            cudart_table: (&raw const CUDART_INTERFACE).addr() as u64,
            integrity_table: (&raw const INTEGRITY_CHECK).addr() as u64,
            function: (integrity_check as *const c_void).addr() as u64,
            unix_seconds,
        };
        // SAFETY: the runtime passes the place of two words.
        unsafe { give(out, Ok(integrity::answer(&question, &host.devices()))) }
    })
}

#[cfg(test)]
#[path = "export_tables_tests.rs"]
mod tests;

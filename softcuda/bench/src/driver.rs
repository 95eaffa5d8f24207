//! The driver calls that are used, through `dlopen`, and safe to call as long as kernels are launched with what they ask for.
#![allow(unsafe_code)]

use anyhow::{Context, bail};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

type Status = c_int;
type Handle = *mut c_void;

/// Declares the table of functions: field, symbol, and type as in cuda.h.
macro_rules! functions {
    ($($field:ident = $symbol:literal : fn($($argument:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> Status,)*
            // Keeps the functions above valid.
            _library: Library,
        }

        impl Functions {
            fn load(path: &Path) -> anyhow::Result<Functions> {
                // SAFETY: loading a CUDA driver runs its constructors, which is what the user asked for.
                let library = unsafe { Library::new(path) }.with_context(|| format!("cannot load {}", path.display()))?;
                Ok(Functions {
                    $($field: {
                        // SAFETY: the type is the symbol's type in cuda.h, and the library is kept in the same struct.
                        *unsafe { library.get($symbol.as_bytes()) }
                            .with_context(|| format!("{} lacks {}", path.display(), $symbol))?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    init = "cuInit": fn(c_uint);
    error_name = "cuGetErrorName": fn(Status, *mut *const c_char);
    primary_retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    set_current = "cuCtxSetCurrent": fn(Handle);
    synchronize = "cuCtxSynchronize": fn();
    mem_alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    mem_free = "cuMemFree_v2": fn(u64);
    htod = "cuMemcpyHtoD_v2": fn(u64, *const c_void, usize);
    dtoh = "cuMemcpyDtoH_v2": fn(*mut c_void, u64, usize);
    module_load = "cuModuleLoadData": fn(*mut Handle, *const c_void);
    module_unload = "cuModuleUnload": fn(Handle);
    module_function = "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    launch = "cuLaunchKernel": fn(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle, *mut Handle);
}

/// A loaded driver with device 0's primary context current in the thread that made it.
pub struct Driver {
    functions: Functions,
}

/// Device memory, freed with the value.
pub struct Buffer<'a> {
    driver: &'a Driver,
    address: u64,
    bytes: usize,
}

/// A module, unloaded with the value.
pub struct Module<'a> {
    driver: &'a Driver,
    handle: Handle,
}

/// A function of a module.
pub struct Kernel<'a> {
    driver: &'a Driver,
    handle: Handle,
    _module: &'a Module<'a>,
}

/// A parameter of a kernel.
#[derive(Clone, Copy)]
pub enum Argument<'a> {
    /// A pointer.
    Buffer(&'a Buffer<'a>),
    /// An integer of 32 bits.
    Int(u32),
    /// A float.
    Float(f32),
}

impl Driver {
    /// Loads the driver and makes device 0's primary context current.
    pub fn load(path: &Path) -> anyhow::Result<Driver> {
        let driver = Driver { functions: Functions::load(path)? };
        let f = &driver.functions;
        let mut context = null_mut();
        // SAFETY: the out pointer is to a live variable.
        unsafe {
            driver.check("cuInit", (f.init)(0))?;
            driver.check("cuDevicePrimaryCtxRetain", (f.primary_retain)(&mut context, 0))?;
            driver.check("cuCtxSetCurrent", (f.set_current)(context))?;
        }
        Ok(driver)
    }

    fn check(&self, call: &str, status: Status) -> anyhow::Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut name = null();
        // SAFETY: the out pointer is valid; on success the name is a string that lives as long as the library.
        let name = unsafe {
            match (self.functions.error_name)(status, &mut name) {
                0 if !name.is_null() => CStr::from_ptr(name).to_string_lossy().into_owned(),
                _ => "unknown".to_owned(),
            }
        };
        bail!("{call} gave {status} ({name})")
    }

    /// Allocates device memory that holds `data`.
    pub fn put<T: Copy>(&self, data: &[T]) -> anyhow::Result<Buffer<'_>> {
        let (bytes, mut address) = (size_of_val(data), 0);
        // SAFETY: the out pointer is valid.
        self.check("cuMemAlloc", unsafe { (self.functions.mem_alloc)(&mut address, bytes) })?;
        let buffer = Buffer { driver: self, address, bytes };
        // SAFETY: both sides have this many bytes.
        self.check("cuMemcpyHtoD", unsafe { (self.functions.htod)(address, data.as_ptr().cast(), bytes) })?;
        Ok(buffer)
    }

    /// Waits for all work.
    pub fn synchronize(&self) -> anyhow::Result<()> {
        // SAFETY: no arguments.
        self.check("cuCtxSynchronize", unsafe { (self.functions.synchronize)() })
    }

    /// Loads PTX.
    pub fn module(&self, ptx: &str) -> anyhow::Result<Module<'_>> {
        let (text, mut handle) = (CString::new(ptx)?, null_mut());
        // SAFETY: the text ends with 0, and the out pointer is valid.
        let status = unsafe { (self.functions.module_load)(&mut handle, text.as_ptr().cast()) };
        self.check("cuModuleLoadData", status)?;
        Ok(Module { driver: self, handle })
    }
}

impl Buffer<'_> {
    /// Copies its beginning to `to`.
    pub fn get<T: Copy>(&self, to: &mut [T]) -> anyhow::Result<()> {
        assert!(size_of_val(to) <= self.bytes);
        let f = self.driver.functions.dtoh;
        // SAFETY: both sides have this many bytes; the benchmark only uses plain numbers.
        self.driver.check("cuMemcpyDtoH", unsafe { f(to.as_mut_ptr().cast(), self.address, size_of_val(to)) })
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by `put`. An error can only be that of the context, which the next call reports.
        unsafe { (self.driver.functions.mem_free)(self.address) };
    }
}

impl Module<'_> {
    /// A kernel.
    pub fn kernel(&self, name: &str) -> anyhow::Result<Kernel<'_>> {
        let (text, mut handle) = (CString::new(name)?, null_mut());
        let f = self.driver.functions.module_function;
        // SAFETY: the name ends with 0, and the out pointer is valid.
        self.driver.check(name, unsafe { f(&mut handle, self.handle, text.as_ptr()) })?;
        Ok(Kernel { driver: self.driver, handle, _module: self })
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // SAFETY: loaded by `Driver::module`, and no kernel of it is left.
        unsafe { (self.driver.functions.module_unload)(self.handle) };
    }
}

impl Kernel<'_> {
    /// Queues a launch on the default stream.
    pub fn launch(&self, grid: [u32; 2], block: [u32; 2], arguments: &[Argument]) -> anyhow::Result<()> {
        let mut values = [0u64; 8];
        let mut pointers = [null_mut(); 8];
        for (i, argument) in arguments.iter().enumerate() {
            values[i] = match argument {
                Argument::Buffer(buffer) => buffer.address,
                Argument::Int(v) => u64::from(*v),
                Argument::Float(v) => u64::from(v.to_bits()),
            };
            pointers[i] = (&raw mut values[i]).cast();
        }
        let ([x, y], [u, v]) = (grid, block);
        // SAFETY: a pointer to a live value for each parameter; a kernel's accesses are checked by the driver.
        let status = unsafe {
            let f = self.driver.functions.launch;
            f(self.handle, x, y, 1, u, v, 1, 0, null_mut(), pointers.as_mut_ptr(), null_mut())
        };
        self.driver.check("cuLaunchKernel", status)
    }

    /// Launches and waits.
    pub fn run(&self, grid: [u32; 2], block: [u32; 2], arguments: &[Argument]) -> anyhow::Result<()> {
        self.launch(grid, block, arguments)?;
        self.driver.synchronize()
    }
}

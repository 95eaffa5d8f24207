//! Calls a CUDA driver library from outside, as programs do: through `dlopen`, and safe to call, as long as kernels are launched
//! with what they ask for. For benchmarks; an error ends them, so it is a text.
#![allow(unsafe_code)]

mod owned;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Context, bail};
use libloading::Library;

pub use owned::{Argument, Buffer, Module, OwnKernel};

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
                        let name = concat!($symbol, "\0").as_bytes();
                        // SAFETY: the type is the symbol's type in cuda.h, and the library is kept in the same struct.
                        *unsafe { library.get(name) }.with_context(|| format!("{} lacks {}", path.display(), $symbol))?
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
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    device_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
    primary_retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    set_current = "cuCtxSetCurrent": fn(Handle);
    get_current = "cuCtxGetCurrent": fn(*mut Handle);
    push_current = "cuCtxPushCurrent_v2": fn(Handle);
    pop_current = "cuCtxPopCurrent_v2": fn(*mut Handle);
    attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    proc_address = "cuGetProcAddress_v2": fn(*const c_char, *mut Handle, c_int, u64, *mut c_uint);
    synchronize = "cuCtxSynchronize": fn();
    stream_create = "cuStreamCreate": fn(*mut Handle, c_uint);
    mem_alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    mem_free = "cuMemFree_v2": fn(u64);
    mem_get_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    host_alloc = "cuMemHostAlloc": fn(*mut Handle, usize, c_uint);
    htod = "cuMemcpyHtoD_v2": fn(u64, *const c_void, usize);
    dtoh = "cuMemcpyDtoH_v2": fn(*mut c_void, u64, usize);
    memset_async = "cuMemsetD32Async": fn(u64, c_uint, usize, Handle);
    module_load = "cuModuleLoadData": fn(*mut Handle, *const c_void);
    module_unload = "cuModuleUnload": fn(Handle);
    module_function = "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    launch = "cuLaunchKernel": fn(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
}

/// PTX of `empty`, a kernel `(u64, u64, u32, u32)` that does nothing.
pub const EMPTY_KERNEL: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 b, .param .u32 c, .param .u32 d)
{
    ret;
}
";

/// A loaded driver.
pub struct Driver {
    functions: Functions,
}

/// Device memory that lives as long as the process, unless it is given up.
#[derive(Clone, Copy)]
pub struct DeviceBuffer {
    address: u64,
    bytes: usize,
}

/// A context that is current.
#[derive(Clone, Copy)]
pub struct Current(Handle);

/// A stream.
#[derive(Clone, Copy)]
pub struct Stream(Handle);

/// A kernel `(u64, u64, u32, u32)`.
#[derive(Clone, Copy)]
pub struct Kernel(Handle);

impl Driver {
    /// Loads the driver, initialises it and makes the first device's primary context current.
    pub fn load(path: &Path) -> anyhow::Result<Driver> {
        let driver = Driver::open(path)?;
        driver.init()?;
        driver.primary()?;
        Ok(driver)
    }

    /// Loads the driver and does nothing with it.
    pub fn open(path: &Path) -> anyhow::Result<Driver> {
        Ok(Driver { functions: Functions::load(path)? })
    }

    /// `cuInit`.
    pub fn init(&self) -> anyhow::Result<()> {
        // SAFETY: no pointers.
        self.check("cuInit", unsafe { (self.functions.init)(0) })
    }

    /// Makes the first device's primary context current.
    pub fn primary(&self) -> anyhow::Result<()> {
        let f = &self.functions;
        let mut context = null_mut();
        let mut device = 0;
        // SAFETY: each out pointer is to a live variable of the right type.
        unsafe {
            self.check("cuDeviceGet", (f.device_get)(&mut device, 0))?;
            self.check("cuDevicePrimaryCtxRetain", (f.primary_retain)(&mut context, device))?;
            self.check("cuCtxSetCurrent", (f.set_current)(context))
        }
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

    /// The first device's name.
    pub fn device_name(&self) -> anyhow::Result<String> {
        let mut name = [0u8; 256];
        // SAFETY: the buffer has the length that is passed, one byte kept for the end.
        let status = unsafe { (self.functions.device_name)(name.as_mut_ptr().cast(), 255, 0) };
        self.check("cuDeviceGetName", status)?;
        Ok(CStr::from_bytes_until_nul(&name)?.to_string_lossy().into_owned())
    }

    /// Allocates device memory.
    pub fn alloc(&self, bytes: usize) -> anyhow::Result<DeviceBuffer> {
        let mut address = 0;
        // SAFETY: the out pointer is valid.
        self.check("cuMemAlloc", unsafe { (self.functions.mem_alloc)(&mut address, bytes) })?;
        Ok(DeviceBuffer { address, bytes })
    }

    /// Allocates pinned host memory, zeroed, which lives as long as the process.
    pub fn pinned(&self, bytes: usize) -> anyhow::Result<&'static mut [u8]> {
        let mut address = null_mut();
        // SAFETY: the out pointer is valid.
        self.check("cuMemHostAlloc", unsafe { (self.functions.host_alloc)(&mut address, bytes, 0) })?;
        if address.is_null() {
            bail!("cuMemHostAlloc gave success and no memory");
        }
        // SAFETY: the driver gave `bytes` bytes, which are never freed; written once before they are seen as a slice.
        Ok(unsafe {
            std::ptr::write_bytes(address.cast::<u8>(), 0, bytes);
            std::slice::from_raw_parts_mut(address.cast(), bytes)
        })
    }

    /// Makes a stream.
    pub fn stream(&self) -> anyhow::Result<Stream> {
        let mut stream = null_mut();
        // SAFETY: the out pointer is valid; 1 is CU_STREAM_NON_BLOCKING.
        self.check("cuStreamCreate", unsafe { (self.functions.stream_create)(&mut stream, 1) })?;
        Ok(Stream(stream))
    }

    /// `cuDeviceGet`.
    pub fn device(&self) -> anyhow::Result<()> {
        let mut device = 0;
        // SAFETY: the out pointer is valid.
        self.check("cuDeviceGet", unsafe { (self.functions.device_get)(&mut device, 0) })
    }

    /// `cuDeviceGetAttribute` of the number of multiprocessors.
    pub fn attribute(&self) -> anyhow::Result<()> {
        let mut value = 0;
        // SAFETY: the out pointer is valid; 16 is CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.
        self.check("cuDeviceGetAttribute", unsafe { (self.functions.attribute)(&mut value, 16, 0) })
    }

    /// `cuCtxGetCurrent`.
    pub fn current(&self) -> anyhow::Result<Current> {
        let mut context = null_mut();
        // SAFETY: the out pointer is valid.
        self.check("cuCtxGetCurrent", unsafe { (self.functions.get_current)(&mut context) })?;
        Ok(Current(context))
    }

    /// `cuCtxPushCurrent`, and `cuCtxPopCurrent`.
    pub fn push_and_pop(&self, context: Current) -> anyhow::Result<()> {
        let mut popped = null_mut();
        // SAFETY: a context of the driver's, and a valid out pointer.
        unsafe {
            self.check("cuCtxPushCurrent", (self.functions.push_current)(context.0))?;
            self.check("cuCtxPopCurrent", (self.functions.pop_current)(&mut popped))
        }
    }

    /// `cuGetProcAddress` of `cuMemFree`, as CUDA 12.0 asks for it.
    pub fn proc_address(&self) -> anyhow::Result<()> {
        let (mut function, mut found) = (null_mut(), 0);
        // SAFETY: the name ends with 0, and both out pointers are valid.
        self.check("cuGetProcAddress", unsafe {
            (self.functions.proc_address)(c"cuMemFree".as_ptr(), &mut function, 12000, 0, &mut found)
        })
    }

    /// `cuMemGetInfo`.
    pub fn mem_get_info(&self) -> anyhow::Result<()> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both out pointers are valid.
        self.check("cuMemGetInfo", unsafe { (self.functions.mem_get_info)(&mut free, &mut total) })
    }

    /// `cuMemcpyHtoD` of all of `from`.
    pub fn htod(&self, to: DeviceBuffer, from: &[u8]) -> anyhow::Result<()> {
        assert!(from.len() <= to.bytes);
        // SAFETY: `from` has this length, and so has the device memory.
        self.check("cuMemcpyHtoD", unsafe {
            (self.functions.htod)(to.address, from.as_ptr().cast(), from.len())
        })
    }

    /// `cuMemcpyDtoH` that fills `to`.
    pub fn dtoh(&self, to: &mut [u8], from: DeviceBuffer) -> anyhow::Result<()> {
        assert!(to.len() <= from.bytes);
        // SAFETY: `to` has this length, and so has the device memory.
        self.check("cuMemcpyDtoH", unsafe {
            (self.functions.dtoh)(to.as_mut_ptr().cast(), from.address, to.len())
        })
    }

    /// `cuMemsetD32Async` of the buffer's first 32 words.
    pub fn memset_async(&self, to: DeviceBuffer, value: u32, stream: Stream) -> anyhow::Result<()> {
        assert!(to.bytes >= 128);
        // SAFETY: the device memory has 32 words.
        self.check("cuMemsetD32Async", unsafe {
            (self.functions.memset_async)(to.address, value, 32, stream.0)
        })
    }

    /// `cuCtxSynchronize`.
    pub fn synchronize(&self) -> anyhow::Result<()> {
        // SAFETY: no arguments.
        self.check("cuCtxSynchronize", unsafe { (self.functions.synchronize)() })
    }

    /// Loads the kernel `name`, of parameters `(u64, u64, u32, u32)`, from PTX text.
    pub fn kernel(&self, ptx: &str, name: &str) -> anyhow::Result<Kernel> {
        let (ptx, name) = (CString::new(ptx)?, CString::new(name)?);
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: text and name end with 0, and the out pointers are valid.
        unsafe {
            self.check("cuModuleLoadData", (self.functions.module_load)(&mut module, ptx.as_ptr().cast()))?;
            self.check(
                "cuModuleGetFunction",
                (self.functions.module_function)(&mut function, module, name.as_ptr()),
            )?;
        }
        Ok(Kernel(function))
    }

    /// `cuLaunchKernel` of one block of 32 threads.
    pub fn launch(&self, kernel: Kernel, buffer: DeviceBuffer, stream: Stream) -> anyhow::Result<()> {
        let (mut a, mut b, mut c, mut d) = (buffer.address, buffer.address, 32u32, 7u32);
        let mut parameters: [*mut c_void; 4] =
            [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut c).cast(), (&raw mut d).cast()];
        // SAFETY: four pointers to live values of the kernel's parameter types; the kernel touches no memory.
        let status = unsafe {
            (self.functions.launch)(
                kernel.0,
                1,
                1,
                1,
                32,
                1,
                1,
                0,
                stream.0,
                parameters.as_mut_ptr(),
                null_mut(),
            )
        };
        self.check("cuLaunchKernel", status)
    }
}

//! Memory and modules that go with their values.

use std::ffi::{CString, c_uint};
use std::ptr::null_mut;

use super::{DeviceBuffer, Driver, Handle, Status};
use anyhow::Context;

/// Device memory, freed with the value.
pub struct Buffer<'a> {
    driver: &'a Driver,
    memory: DeviceBuffer,
}

/// A module, unloaded with the value.
pub struct Module<'a> {
    driver: &'a Driver,
    handle: Handle,
}

/// A function of a module that is still there.
pub struct OwnKernel<'a> {
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
    /// Allocates device memory that holds `data`.
    pub fn put<T: Copy>(&self, data: &[T]) -> anyhow::Result<Buffer<'_>> {
        let bytes = size_of_val(data);
        let buffer = Buffer { driver: self, memory: self.alloc(bytes)? };
        let (to, f) = (buffer.memory.address, self.functions.htod);
        // SAFETY: both sides have this many bytes.
        self.check("cuMemcpyHtoD", unsafe { f(to, data.as_ptr().cast(), bytes) })?;
        Ok(buffer)
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

impl Driver {
    /// Loads a fatbin; its first byte must be at a multiple of 8.
    pub fn fatbin(&self, image: &[u64]) -> anyhow::Result<Module<'_>> {
        let mut handle = null_mut();
        // SAFETY: the image is whole, as its header says how long it is, and the out pointer is valid.
        let status = unsafe { (self.functions.module_load)(&mut handle, image.as_ptr().cast()) };
        self.check("cuModuleLoadData", status)?;
        Ok(Module { driver: self, handle })
    }

    /// A call that not every driver has.
    ///
    /// # Safety
    /// `T` is its type in cuda.h.
    unsafe fn call<T: Copy>(&self, name: &str) -> anyhow::Result<T> {
        let text = CString::new(name)?;
        // SAFETY: as promised; the library stays loaded as long as the driver lives.
        let found = unsafe { self.functions._library.get::<T>(text.as_bytes_with_nul()) };
        Ok(*found.with_context(|| format!("the driver lacks {name}"))?)
    }
}

impl Buffer<'_> {
    /// Copies its beginning to `to`.
    pub fn get<T: Copy>(&self, to: &mut [T]) -> anyhow::Result<()> {
        assert!(size_of_val(to) <= self.memory.bytes);
        let f = self.driver.functions.dtoh;
        // SAFETY: both sides have this many bytes; the benchmark only uses plain numbers.
        self.driver
            .check("cuMemcpyDtoH", unsafe { f(to.as_mut_ptr().cast(), self.memory.address, size_of_val(to)) })
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by `put`. An error can only be that of the context, which the next call reports.
        unsafe { (self.driver.functions.mem_free)(self.memory.address) };
    }
}

impl Module<'_> {
    /// All kernels.
    pub fn kernels(&self) -> anyhow::Result<Vec<OwnKernel<'_>>> {
        type Count = unsafe extern "C" fn(*mut c_uint, Handle) -> Status;
        type Enumerate = unsafe extern "C" fn(*mut Handle, c_uint, Handle) -> Status;
        let driver = self.driver;
        let mut number = 0;
        // SAFETY: the types are those of cuda.h; the out pointers are valid, the second one for as many handles as are asked for.
        let handles = unsafe {
            let count = driver.call::<Count>("cuModuleGetFunctionCount")?;
            driver.check("cuModuleGetFunctionCount", count(&mut number, self.handle))?;
            let mut handles = vec![null_mut(); number as usize];
            let enumerate = driver.call::<Enumerate>("cuModuleEnumerateFunctions")?;
            driver
                .check("cuModuleEnumerateFunctions", enumerate(handles.as_mut_ptr(), number, self.handle))?;
            handles
        };
        Ok(handles.into_iter().map(|handle| OwnKernel { driver, handle, _module: self }).collect())
    }

    /// A kernel.
    pub fn kernel(&self, name: &str) -> anyhow::Result<OwnKernel<'_>> {
        let (text, mut handle) = (CString::new(name)?, null_mut());
        let f = self.driver.functions.module_function;
        // SAFETY: the name ends with 0, and the out pointer is valid.
        self.driver.check(name, unsafe { f(&mut handle, self.handle, text.as_ptr()) })?;
        Ok(OwnKernel { driver: self.driver, handle, _module: self })
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // SAFETY: loaded by `Driver::module`, and no kernel of it is left.
        unsafe { (self.driver.functions.module_unload)(self.handle) };
    }
}

impl OwnKernel<'_> {
    /// Has its code made.
    pub fn load(&self) -> anyhow::Result<()> {
        // SAFETY: the type is that of cuda.h; the handle is that of a function whose module is loaded.
        let status =
            unsafe { self.driver.call::<unsafe extern "C" fn(Handle) -> Status>("cuFuncLoad")?(self.handle) };
        self.driver.check("cuFuncLoad", status)
    }

    /// Queues a launch on the default stream.
    pub fn launch(&self, grid: [u32; 2], block: [u32; 2], arguments: &[Argument]) -> anyhow::Result<()> {
        let mut values = [0u64; 8];
        let mut pointers = [null_mut(); 8];
        for (i, argument) in arguments.iter().enumerate() {
            values[i] = match argument {
                Argument::Buffer(buffer) => buffer.memory.address,
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

//! What loads and links share: checking an image, JIT options, logs, and the table of contents.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;

use gpupool_protocol::image::{
    Contents, JitOption, KernelInfo, MAX_IMAGE, MAX_PARAMETERS, Memory, ParamInfo, extent, linked,
};

use crate::worker::code::{Code, Fail};
use crate::worker::functions::Functions;
use crate::worker::objects::{Kernel, Kernels};

/// Log bytes that are given at most, whatever was asked for.
const LOG_MAX: u64 = 1 << 20;
/// Options that one call may have.
const OPTIONS_MAX: usize = 64;
/// Parameters that are asked for at most: more do not fit a block.
const PARAMS_MAX: usize = MAX_PARAMETERS as usize;
/// `CUfunction_attribute`s that a table of contents carries.
const ATTRIBUTES: std::ops::Range<u32> = 0..16;

// CUjit_option, by cuda.h.
const WALL_TIME: u32 = 2;
const INFO_LOG_BUFFER: u32 = 3;
const INFO_LOG_SIZE: u32 = 4;
const ERROR_LOG_BUFFER: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;
/// Options whose value is a number that the compiler reads.
const NUMBERS: &[u32] = &[0, 1, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24, 29, 30, 31, 32, 33];

/// An image in private memory, followed by zeroes.
pub struct Image {
    bytes: Vec<u8>,
    /// For a linked image with its parts: the wrapper that a compiler puts around them, and its list; else empty.
    wrapper: Vec<u64>,
}

struct Slice<'s>(&'s [u8]);

impl Memory for Slice<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let from =
            usize::try_from(at).ok().and_then(|at| self.0.get(at..)).and_then(|rest| rest.get(..into.len()));
        from.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

impl Image {
    /// Checks that what the image says of its own length is true: a driver gets only its address.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_IMAGE.
    pub fn new(mut bytes: Vec<u8>) -> Result<Self, Code> {
        if linked::is_joined(&bytes) {
            return Self::with_parts(bytes).ok_or(Code::INVALID_IMAGE);
        }
        let length = bytes.len() as u64;
        // Text may come without its terminator, and parsers look a little ahead.
        bytes.extend_from_slice(&[0; 16]);
        match extent(&Slice(&bytes), 0) {
            Ok(claimed) if claimed <= length + 1 && length <= MAX_IMAGE => {
                Ok(Self { bytes, wrapper: Vec::new() })
            }
            _ => Err(Code::INVALID_IMAGE),
        }
    }

    /// A linked image with its parts, each of which is no longer than it may be.
    fn with_parts(bytes: Vec<u8>) -> Option<Self> {
        let fatbins = linked::split(&bytes).filter(|_| bytes.len() as u64 <= MAX_IMAGE)?;
        let whole = |part: &Range<usize>| {
            extent(&Slice(&bytes[part.clone()]), 0).is_ok_and(|claimed| claimed <= part.len() as u64)
        };
        if !fatbins.iter().all(whole) {
            return None;
        }
        // {magic, version; the linked image; its parts}, and the list of parts, which ends with null.
        let start = bytes.as_ptr().expose_provenance() as u64;
        let mut addresses = fatbins.iter().map(|fatbin| start + fatbin.start as u64);
        let head = u64::from_le_bytes(*bytes.first_chunk()?);
        let mut wrapper = vec![head, addresses.next()?, 0];
        wrapper.extend(addresses);
        wrapper.push(0);
        wrapper[2] = wrapper[3..].as_ptr().expose_provenance() as u64;
        Some(Self { bytes, wrapper })
    }

    /// Its address, for as long as it lives.
    pub fn address(&self) -> *const c_void {
        if self.wrapper.is_empty() { self.bytes.as_ptr().cast() } else { self.wrapper.as_ptr().cast() }
    }
}

/// JIT options as a driver takes them, with log buffers of our own.
pub struct Jit {
    options: Vec<u32>,
    values: Vec<*mut c_void>,
    info: Vec<u8>,
    error: Vec<u8>,
}

impl Jit {
    /// From the client's options.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE for an option that is none, CUDA_ERROR_NOT_SUPPORTED for one that is no number.
    pub fn new(wanted: &[JitOption]) -> Result<Self, Code> {
        let mut jit = Self { options: Vec::new(), values: Vec::new(), info: Vec::new(), error: Vec::new() };
        if wanted.len() > OPTIONS_MAX {
            return Err(Code::INVALID_VALUE);
        }
        for JitOption { option, value } in wanted {
            let size = (*value).min(LOG_MAX) as usize;
            match *option {
                INFO_LOG_SIZE => jit.info = vec![0; size],
                ERROR_LOG_SIZE => jit.error = vec![0; size],
                number if NUMBERS.contains(&number) => jit.add(number, *value),
                WALL_TIME..=33 => return Err(Code::NOT_SUPPORTED),
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        let (info, error) = (jit.info.as_mut_ptr() as u64, jit.error.as_mut_ptr() as u64);
        for (size, length, buffer, address) in [
            (INFO_LOG_SIZE, jit.info.len(), INFO_LOG_BUFFER, info),
            (ERROR_LOG_SIZE, jit.error.len(), ERROR_LOG_BUFFER, error),
        ] {
            if length > 0 {
                jit.add(buffer, address);
                jit.add(size, length as u64);
            }
        }
        Ok(jit)
    }

    fn add(&mut self, option: u32, value: u64) {
        self.options.push(option);
        self.values.push(std::ptr::with_exposed_provenance_mut(value as usize));
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.options.len() as u32
    }

    /// The options; null if there is none.
    pub fn options(&mut self) -> *mut u32 {
        if self.options.is_empty() { std::ptr::null_mut() } else { self.options.as_mut_ptr() }
    }

    /// Their values; null if there is none.
    pub fn values(&mut self) -> *mut *mut c_void {
        if self.values.is_empty() { std::ptr::null_mut() } else { self.values.as_mut_ptr() }
    }

    /// What the compiler has said: information and errors. To be asked when nobody writes it any more.
    pub fn logs(&self) -> (String, String) {
        (text(&self.info), text(&self.error))
    }
}

/// The text before the first NUL.
fn text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&b| b == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}

/// Encodes a table of contents so that no string in it breaks the encoding's rules.
pub fn contents(kernels: Vec<KernelInfo>, jit: &Jit) -> Contents {
    let (info_log, error_log) = jit.logs();
    Contents { kernels, info_log, error_log }
}

/// What a driver says about its kernels, either way of asking.
struct Ask<'f> {
    name: &'f dyn Fn(&mut *const c_char, u64) -> Code,
    param: &'f dyn Fn(u64, usize, &mut usize, &mut usize) -> Code,
    attribute: &'f dyn Fn(&mut i32, u32, u64) -> Code,
}

/// The functions of a module.
///
/// # Errors
/// What the driver says.
pub fn module_kernels(f: &Functions, module: u64) -> Result<(Kernels, Vec<KernelInfo>), Code> {
    let mut count = 0;
    succeeded(f.cuModuleGetFunctionCount(&mut count, module))?;
    let mut natives = vec![0; count as usize];
    if count > 0 {
        // SAFETY: there is room for `count` handles.
        succeeded(unsafe { f.cuModuleEnumerateFunctions(natives.as_mut_ptr(), count, module) })?;
    }
    let ask = Ask {
        name: &|name, function| f.cuFuncGetName(name, function),
        param: &|function, index, offset, size| f.cuFuncGetParamInfo(function, index, offset, size),
        attribute: &|value, attribute, function| f.cuFuncGetAttribute(value, attribute, function),
    };
    describe(&ask, &natives, false)
}

/// The kernels of a library, with their attributes on `device`.
///
/// # Errors
/// What the driver says.
pub fn library_kernels(f: &Functions, library: u64, device: i32) -> Result<(Kernels, Vec<KernelInfo>), Code> {
    let mut count = 0;
    succeeded(f.cuLibraryGetKernelCount(&mut count, library))?;
    let mut natives = vec![0; count as usize];
    if count > 0 {
        // SAFETY: there is room for `count` handles.
        succeeded(unsafe { f.cuLibraryEnumerateKernels(natives.as_mut_ptr(), count, library) })?;
    }
    let ask = Ask {
        name: &|name, kernel| f.cuKernelGetName(name, kernel),
        param: &|kernel, index, offset, size| f.cuKernelGetParamInfo(kernel, index, offset, size),
        attribute: &|value, attribute, kernel| f.cuKernelGetAttribute(value, attribute, kernel, device),
    };
    describe(&ask, &natives, true)
}

fn succeeded(code: Code) -> Result<(), Code> {
    if code == Code::SUCCESS { Ok(()) } else { Err(code) }
}

fn describe(ask: &Ask<'_>, natives: &[u64], library: bool) -> Result<(Kernels, Vec<KernelInfo>), Code> {
    let mut kernels = Kernels { library, all: Vec::with_capacity(natives.len()) };
    let mut infos = Vec::with_capacity(natives.len());
    for &native in natives {
        let (kernel, info) = describe_one(ask, native)?;
        kernels.all.push(kernel.into());
        infos.push(info);
    }
    Ok((kernels, infos))
}

fn describe_one(ask: &Ask<'_>, native: u64) -> Result<(Kernel, KernelInfo), Code> {
    let mut name = std::ptr::null();
    succeeded((ask.name)(&mut name, native))?;
    if name.is_null() {
        return Err(Code::UNKNOWN);
    }
    // SAFETY: the driver has given a name, a C string that lives as long as the module.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let mut params = Vec::new();
    for index in 0..PARAMS_MAX {
        let (mut offset, mut size) = (0, 0);
        if (ask.param)(native, index, &mut offset, &mut size) != Code::SUCCESS {
            break;
        }
        let narrow = |n: usize| u32::try_from(n).or(Err(Code::UNKNOWN));
        let (offset, size) = (narrow(offset)?, narrow(size)?);
        if offset.checked_add(size).is_none_or(|end| end > MAX_PARAMETERS) {
            // The client could not launch it, and would take the table of contents for nonsense.
            return Err(Code::NOT_SUPPORTED);
        }
        params.push((offset, size));
    }
    let mut attributes = Vec::new();
    for attribute in ATTRIBUTES {
        let mut value = 0;
        if (ask.attribute)(&mut value, attribute, native) != Code::SUCCESS {
            break;
        }
        attributes.push(value);
    }
    let infos = params.iter().map(|&(offset, size)| ParamInfo { offset, size }).collect();
    let block = params.iter().map(|&(offset, size)| offset as usize + size as usize).max().unwrap_or(0);
    let kernel = Kernel { native, params: params.into(), block };
    Ok((kernel, KernelInfo { name, params: infos, attributes }))
}

/// Decodes options, which are bytes of their own in a record.
///
/// # Errors
/// [`Fail::Bad`].
pub fn options(bytes: &[u8]) -> Result<Vec<JitOption>, Fail> {
    use gpupool_protocol::wire::codec::{Reader, Wire};
    let mut from = Reader::new(bytes);
    let options = if bytes.is_empty() { Vec::new() } else { Vec::<JitOption>::get(&mut from)? };
    from.end()?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_claims_more_than_it_has_is_refused() {
        assert!(Image::new(b".version 9.0".to_vec()).is_ok());
        assert!(Image::new(b".version 9.0\0".to_vec()).is_ok());
        let mut fatbin = 0xBA55_ED50u32.to_le_bytes().to_vec();
        fatbin.extend([1, 0, 16, 0]);
        fatbin.extend(100u64.to_le_bytes());
        assert!(Image::new(fatbin.clone()).is_err());
        fatbin.extend([0; 100]);
        assert!(Image::new(fatbin).is_ok());
        assert!(Image::new(Vec::new()).is_err());
        assert!(Image::new(vec![1; 64]).is_err());
        // A linked image with parts, one of which claims more than it has.
        let mut part = 0xBA55_ED50u32.to_le_bytes().to_vec();
        part.extend_from_slice(&[1, 0, 16, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9]);
        let image = Image::new(linked::join(&[&part, &part])).unwrap();
        assert_eq!(image.wrapper[0], 0x2_4662_43B1);
        assert_eq!((image.wrapper[2], image.wrapper[4]), (image.wrapper[3..].as_ptr().addr() as u64, 0));
        let offset = |at: u64| at - image.bytes.as_ptr().addr() as u64;
        assert_eq!((offset(image.wrapper[1]), offset(image.wrapper[3])), (32, 56));
        part[8] = 5;
        assert!(Image::new(linked::join(&[&part, &part])).is_err());
    }

    #[test]
    fn a_kernel_that_no_launch_can_carry_is_refused() {
        let describe = |bytes: usize| {
            let param = move |_, index, offset: &mut usize, size: &mut usize| {
                (*offset, *size) = (4, bytes);
                if index == 0 { Code::SUCCESS } else { Code::INVALID_VALUE }
            };
            let name = |name: &mut *const c_char, _| {
                *name = c"k".as_ptr();
                Code::SUCCESS
            };
            let ask = Ask { name: &name, param: &param, attribute: &|_, _, _| Code::INVALID_VALUE };
            describe_one(&ask, 1).map(|(kernel, info)| (kernel.block, info.params.len()))
        };
        let most = MAX_PARAMETERS as usize;
        assert_eq!(describe(most - 4), Ok((most, 1)));
        assert_eq!(describe(most - 3), Err(Code::NOT_SUPPORTED));
        assert_eq!(describe(u32::MAX as usize), Err(Code::NOT_SUPPORTED));
    }

    #[test]
    fn options_are_numbers_or_log_sizes() {
        let option = |option, value| JitOption { option, value };
        let mut jit = Jit::new(&[option(7, 3), option(ERROR_LOG_SIZE, u64::MAX)]).unwrap();
        assert_eq!(jit.count(), 3);
        assert_eq!(jit.error.len() as u64, LOG_MAX);
        jit.error[..4].copy_from_slice(b"oops");
        assert_eq!(jit.logs(), (String::new(), "oops".into()));
        assert!(!jit.options().is_null() && !jit.values().is_null());
        assert!(Jit::new(&[option(INFO_LOG_BUFFER, 0x1000)]).is_err(), "an address of the client");
        assert!(Jit::new(&[option(18, 0x1000)]).is_err(), "symbol addresses");
        assert!(Jit::new(&[option(77, 0)]).is_err());
        assert!(Jit::new(&[]).unwrap().options().is_null());
    }
}

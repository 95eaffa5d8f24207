//! `cuLink*`: PTX texts that are put together into one image which the load calls accept.

use crate::current;
use crate::driver::TABLES;
use crate::error::*;
use crate::image::{self, Texts, container};
use crate::jit::Options;
use crate::log;
use crate::module::{self, Refused};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// One link.
pub struct Link {
    state: Mutex<State>,
    options: Options,
}

#[derive(Default)]
struct State {
    texts: Texts,
    product: Option<Arc<[u8]>>,
}

/// What is added (`CUjitInputType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// `CU_JIT_INPUT_PTX`.
    Ptx,
    /// `CU_JIT_INPUT_FATBINARY`, or a cubin that may be a container of ours.
    Image,
    /// `CU_JIT_INPUT_OBJECT`: a host object with fatbins in it.
    Object,
    /// `CU_JIT_INPUT_LIBRARY`: an archive of those.
    Library,
}

/// `cuLinkCreate`.
pub fn create(options: Options) -> usize {
    let handle = TABLES.links.reserve();
    TABLES.links.add(handle, Arc::new(Link { state: Mutex::default(), options }));
    handle
}

/// The kind of an input.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` for NVVM IR, which CUDA 12 no longer takes either, and `CUDA_ERROR_INVALID_VALUE` for a number that is
/// no kind.
pub fn input(kind: u32) -> Result<Input> {
    match kind {
        1 => Ok(Input::Ptx),
        0 | 2 => Ok(Input::Image),
        3 => Ok(Input::Object),
        4 => Ok(Input::Library),
        5 => Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl Link {
    /// `cuLinkAddData` and `cuLinkAddFile`.
    ///
    /// # Errors
    /// 218 with a line in the error log for PTX that is not accepted, 209 and 200 as when an image is loaded.
    pub fn add(&self, input: Input, data: &[u8]) -> Result {
        let began = Instant::now();
        let added = self.add_texts(input, data);
        self.report(&added, began);
        added.map_err(|e| e.code)
    }

    fn add_texts(&self, input: Input, data: &[u8]) -> std::result::Result<(), Refused> {
        let device = current::device()?;
        let architecture = device.capability.architecture();
        let texts = match input {
            Input::Ptx => {
                let end = data.iter().position(|b| *b == 0).unwrap_or(data.len());
                let text = String::from_utf8(data[..end].to_vec()).map_err(|_| CUDA_ERROR_INVALID_PTX)?;
                vec![text]
            }
            Input::Image => image::read_slice(data, architecture)?,
            Input::Object => image::host_object::texts(data, architecture)?,
            Input::Library => {
                // A member that is not accepted is left out: what needs it then names what is missing.
                let members = image::host_object::texts_of_archive(data, architecture)?;
                members
                    .into_iter()
                    .filter(|m| module::parse(m, &device.capability).is_ok())
                    .flatten()
                    .collect()
            }
        };
        // Each alone first, so that the line in the log is the line of what was added.
        for text in &texts {
            module::parse(&vec![text.clone()], &device.capability)?;
        }
        self.lock().texts.extend(texts);
        Ok(())
    }

    /// `cuLinkComplete`: the image; it stays until the link is destroyed.
    ///
    /// # Errors
    /// 218 if the texts do not go together or something is nowhere defined; `CUDA_ERROR_INVALID_VALUE` if there are none.
    pub fn complete(&self) -> Result<Arc<[u8]>> {
        let began = Instant::now();
        let made = self.product();
        self.report(&made, began);
        made.map_err(|e| e.code)
    }

    fn product(&self) -> std::result::Result<Arc<[u8]>, Refused> {
        let mut state = self.lock();
        if state.texts.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE.into());
        }
        if state.product.is_none() {
            let capability = &current::device()?.capability;
            if let Some(name) = module::parse(&state.texts, capability)?.undefined() {
                let log = format!("undefined reference to `{name}`");
                return Err(Refused { code: CUDA_ERROR_INVALID_PTX, log });
            }
            let registers = self.options.max_registers;
            state.product = Some(container::make(&state.texts, registers, capability.architecture()).into());
        }
        state.product.clone().ok_or_else(|| CUDA_ERROR_UNKNOWN.into())
    }

    fn report<T>(&self, result: &std::result::Result<T, Refused>, began: Instant) {
        let text = result.as_ref().err().map_or("", |e| &e.log);
        if !text.is_empty() {
            log::line(|| format!("link: {text}"));
        }
        // SAFETY: CUDA demands that the buffers given to cuLinkCreate live as long as the link.
        unsafe { self.options.report(text, began.elapsed()) };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The link of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn find(handle: usize) -> Result<Arc<Link>> {
    TABLES.links.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

//! Modules: code and variables placed in a context.
#![forbid(unsafe_code)]

use crate::allocations::What;
use crate::capability::Capability;
use crate::context::Context;
use crate::current;
use crate::device::Device;
use crate::driver::TABLES;
use crate::error::*;
use crate::function::{Function, Settings};
use crate::image::{self, Image, Texts};
use crate::reference::References;
use cudarc::driver::sys::CUresult;
use softcuda_engine::{self as engine, Target};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why an image was not loaded: CUDA's code, and the words for the error log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// CUDA's code.
    pub code: CUresult,
    /// What was wrong, for the JIT error log; may be empty.
    pub log: String,
}

impl From<CUresult> for Refused {
    fn from(code: CUresult) -> Self {
        let log = match code {
            CUDA_ERROR_NO_BINARY_FOR_GPU => {
                "softcuda runs PTX, and the image holds none for the device's compute capability or older"
            }
            CUDA_ERROR_INVALID_IMAGE => "the image is no fatbin, PTX or ELF, or is damaged",
            _ => "",
        };
        Self { code, log: log.to_owned() }
    }
}

/// One module.
pub struct Module {
    /// Its handle.
    pub handle: usize,
    /// Its context's handle.
    pub context: usize,
    /// Its code and variables.
    pub loaded: Arc<engine::Loaded>,
    /// Its functions, in the order of the text.
    pub functions: Vec<Arc<Function>>,
    /// Its texture and surface references.
    pub references: Arc<References>,
    by_name: HashMap<String, usize>,
    unloaded: AtomicBool,
}

/// What a module's image says beside its code.
#[derive(Debug, Clone)]
pub struct Origin {
    /// NVIDIA's runtime loaded it.
    pub from_runtime: bool,
    /// See [`Image::max_registers`].
    pub max_registers: Option<u32>,
    /// The names of its managed variables.
    pub managed: HashSet<String>,
}

impl Origin {
    /// That of an image.
    pub fn of(image: &Image) -> Origin {
        let managed =
            image.texts.iter().flat_map(|text| managed_variables(text)).map(str::to_owned).collect();
        Origin { from_runtime: image.wrapped, max_registers: image.max_registers, managed }
    }
}

/// The variables that a text declares as managed: `.global .attribute(.managed) .align 4 .u32 name = 5;`.
fn managed_variables(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).filter_map(|line| {
        let (_, declared) = line.split_once(".attribute(.managed)")?;
        let end = declared.find(['=', '[', ';']).unwrap_or(declared.len());
        declared[..end].split_whitespace().next_back()
    })
}

/// Reads PTX for a device of this capability.
///
/// # Errors
/// [`Refused`] with 209 if a text is for other devices, with 218 and the line for one that is not accepted.
pub fn parse(texts: &Texts, capability: &Capability) -> std::result::Result<engine::Module, Refused> {
    // Before anything else, as NVIDIA's assembler does: the rest may be what only the other device has.
    texts.iter().filter_map(|text| Target::of(text)).try_for_each(|target| runs_on(target, capability))?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    engine::Module::link(&texts).map_err(|e| Refused { code: CUDA_ERROR_INVALID_PTX, log: e.to_string() })
}

/// # Errors
/// [`Refused`] with 209 for what was made for other devices.
fn runs_on(target: Target, capability: &Capability) -> std::result::Result<(), Refused> {
    if target.runs_on((capability.major, capability.minor)) {
        return Ok(());
    }
    let log = format!("the text is for {target}, and the device is an sm_{}", capability.architecture());
    Err(Refused { code: CUDA_ERROR_NO_BINARY_FOR_GPU, log })
}

/// Places what was read in a device's memory.
///
/// # Errors
/// [`Refused`] with 2 if its variables do not fit, 218 if something is nowhere defined, 209 if a text is for other devices than this one.
pub fn place(parsed: engine::Module, device: &Device) -> std::result::Result<Arc<engine::Loaded>, Refused> {
    parsed.targets().iter().try_for_each(|target| runs_on(*target, &device.capability))?;
    engine::Loaded::new(&device.memory, parsed).map_err(|e| Refused { code: of_load(&e), log: e.to_string() })
}

impl Module {
    /// Makes a module of what was placed in a context's device, and its functions; `settings` gives those of a library's
    /// kernel.
    pub fn new(
        context: &Context,
        loaded: Arc<engine::Loaded>,
        origin: &Origin,
        settings: impl Fn(&engine::Kernel) -> Option<Arc<Settings>>,
    ) -> Arc<Module> {
        let handle = TABLES.modules.reserve();
        let references = References::new(context, &loaded);
        let functions: Vec<Arc<Function>> = loaded
            .kernels()
            .iter()
            .map(|kernel| {
                Arc::new(Function {
                    setup: Default::default(),
                    references: references.clone(),
                    handle: TABLES.functions.reserve(),
                    context: context.handle,
                    device: context.device.clone(),
                    module: handle,
                    kernel: kernel.clone(),
                    name: CString::new(kernel.name.as_str()).unwrap_or_default(),
                    from_runtime: origin.from_runtime,
                    settings: settings(kernel)
                        .unwrap_or_else(|| Arc::new(Settings::new(kernel, origin.max_registers))),
                })
            })
            .collect();
        for function in &functions {
            TABLES.functions.add(function.handle, function.clone());
        }
        for variable in loaded.globals() {
            let what = What::Variable { managed: origin.managed.contains(&variable.name) };
            TABLES.allocations.add(variable.addr, variable.size, what, context.handle, &context.device);
        }
        let by_name = functions.iter().enumerate().map(|(i, f)| (f.kernel.name.clone(), i)).collect();
        let unloaded = AtomicBool::new(false);
        let module = Arc::new(Module {
            handle,
            context: context.handle,
            loaded,
            functions,
            references,
            by_name,
            unloaded,
        });
        TABLES.modules.add(handle, module.clone());
        module
    }

    /// Takes the module's handles and variables away; what still runs keeps its code and memory until it ends.
    pub fn unload(&self) {
        if self.unloaded.swap(true, Ordering::AcqRel) {
            return;
        }
        TABLES.modules.remove(self.handle);
        self.references.unload();
        for function in &self.functions {
            TABLES.functions.remove(function.handle);
        }
        for variable in self.loaded.globals() {
            TABLES.allocations.take(variable.addr, |a| matches!(a.what, What::Variable { .. }));
        }
    }

    /// `cuModuleGetFunction`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn function(&self, name: &str) -> Result<Arc<Function>> {
        self.by_name.get(name).map(|i| self.functions[*i].clone()).ok_or(CUDA_ERROR_NOT_FOUND)
    }

    /// `cuModuleGetGlobal`: address and size.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn global(&self, name: &str) -> Result<(u64, usize)> {
        let found = self.loaded.globals().find(|g| g.name == name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        Ok((found.addr, found.size as usize))
    }
}

/// The module of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn find(handle: usize) -> Result<Arc<Module>> {
    TABLES.modules.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// `cuModuleLoadData` of what an image holds.
///
/// # Errors
/// [`Refused`]; no current context.
pub fn load(image: &Image) -> std::result::Result<usize, Refused> {
    let context = current::healthy()?;
    let parsed = parse(&image.texts, &context.device.capability)?;
    let loaded = place(parsed, &context.device)?;
    Ok(Module::new(&context, loaded, &Origin::of(image), |_| None).handle)
}

/// `cuModuleUnload`: waits for the context's work first.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
pub fn unload(handle: usize) -> Result {
    let module = find(handle)?;
    if let Some(context) = TABLES.contexts.get(module.context) {
        // The error of a dead context is not this call's to report: the module goes in any case.
        let _ = context.drain();
    }
    module.unload();
    Ok(())
}

/// What an image in a file holds.
///
/// # Errors
/// `CUDA_ERROR_FILE_NOT_FOUND`, and those of [`image::read_slice`].
pub fn read_file(path: &std::path::Path) -> Result<Image> {
    let bytes = std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    Ok(Image::new(image::read_slice(&bytes, current::architecture())?, false))
}

#[cfg(test)]
mod tests {
    use super::managed_variables;

    #[test]
    fn managed_variables_are_found() {
        let text = ".visible .global .attribute(.managed) .align 4 .u32 one = 5;\n// .attribute(.managed) .u32 no;\n\
            .global .align 4 .u32 two;\n.global .attribute(.managed) .align 16 .b8 three[64];\n";
        assert_eq!(managed_variables(text).collect::<Vec<_>>(), ["one", "three"]);
    }
}

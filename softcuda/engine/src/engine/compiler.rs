//! What makes code: the generator, once it is needed, and the cache on disk.
#![forbid(unsafe_code)]

use crate::codegen::cache::CodeCache;
use crate::codegen::clif::Clif;
use crate::codegen::{Code, Exec};
use crate::kernel::Kernel;
use std::sync::{Arc, OnceLock};

/// See the module.
pub struct Compiler {
    generator: OnceLock<Result<Clif, String>>,
    cache: Option<Arc<CodeCache>>,
}

impl Compiler {
    pub fn new(cache: Option<Arc<CodeCache>>) -> Compiler {
        Compiler { generator: OnceLock::new(), cache }
    }

    fn generator(&self) -> Result<&Clif, String> {
        self.generator.get_or_init(Clif::new).as_ref().map_err(String::clone)
    }

    /// The code of a kernel for blocks of these dimensions.
    pub fn code(&self, kernel: &Kernel, block: [u32; 3]) -> Result<Arc<Code>, String> {
        kernel.code(self.generator()?, self.cache.as_deref(), block)
    }

    /// The version of a kernel's code for single lanes.
    pub fn lanes(&self, kernel: &Kernel, code: &Code) -> Result<Exec, String> {
        kernel.make_lanes(self.generator()?, self.cache.as_deref(), code)
    }
}

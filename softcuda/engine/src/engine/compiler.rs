//! What makes code: the generator, once it is needed, and the cache on disk.
#![forbid(unsafe_code)]

use super::tiers::{Background, Policy, PutOff};
use crate::codegen::cache::CodeCache;
use crate::codegen::clif::Clif;
use crate::codegen::{Code, Exec, Object, Part};
use crate::kernel::{Kernel, Recipe};
use std::sync::{Arc, OnceLock};

/// See the module.
pub struct Compiler {
    generator: OnceLock<Result<Clif, String>>,
    cache: Option<Arc<CodeCache>>,
    policy: Policy,
    pub(super) background: Background,
}

impl Compiler {
    pub fn new(cache: Option<Arc<CodeCache>>) -> Compiler {
        Compiler {
            generator: OnceLock::new(),
            cache,
            policy: Policy::from_environment(),
            background: Background::default(),
        }
    }

    fn generator(&self) -> Result<&Clif, String> {
        self.generator.get_or_init(Clif::new).as_ref().map_err(String::clone)
    }

    /// The code of a kernel for blocks of these dimensions, and what was put off if it is not the best (see [`super::tiers`]).
    pub fn code(&self, kernel: &Kernel, block: [u32; 3]) -> Result<(Arc<Code>, Option<Arc<PutOff>>), String> {
        let make = |part: &Recipe| self.object(part, None);
        let best = kernel.variant(block);
        let Some(off) = kernel.put_off(&self.policy, best) else {
            return Ok((kernel.code(best, make)?, None));
        };
        if let Some(code) = kernel.made(best) {
            return Ok((code, None));
        }
        let quick = kernel.quick_variant();
        // Another process may have found it worth the time.
        if kernel.made(quick).is_none()
            && let Some(object) = self.kept(&kernel.recipe(best))?
        {
            return Ok((kernel.code(best, |_| Ok(object))?, None));
        }
        Ok((kernel.code(quick, make)?, Some(off)))
    }

    /// The version of a kernel's code for single lanes.
    pub fn lanes(&self, kernel: &Kernel, code: &Code) -> Result<Exec, String> {
        kernel.map(&self.object(&kernel.recipe(code.variant), Some(&code.places))?)
    }

    /// What is made by a recipe: the kernel, or with the places of its registers the version for single lanes.
    pub(super) fn object(&self, recipe: &Recipe, places: Option<&[u32]>) -> Result<Object, String> {
        let generator = self.generator()?;
        let unit = recipe.unit(places.map_or(Part::Kernel, Part::Lanes));
        // A compiler that gives up by panicking has given up all the same.
        let compile = std::panic::AssertUnwindSafe(|| match &self.cache {
            Some(cache) => cache.object(generator, &unit),
            None => crate::codegen::Generator::compile(generator, &unit),
        });
        let made = std::panic::catch_unwind(compile);
        made.unwrap_or_else(|_| Err("the code generator panicked".to_string()))
    }

    /// What the cache on disk has of a kernel.
    fn kept(&self, recipe: &Recipe) -> Result<Option<Object>, String> {
        let Some(cache) = &self.cache else { return Ok(None) };
        Ok(cache.kept(self.generator()?, &recipe.unit(Part::Kernel)))
    }
}

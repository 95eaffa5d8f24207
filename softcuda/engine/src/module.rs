//! A parsed module.

use crate::error::PtxError;
use crate::ir::Program;
use crate::ptx;

/// PTX text that has been read and checked, with nothing placed in memory yet.
#[derive(Debug, Clone)]
pub struct Module {
    pub(crate) program: Program,
    pub(crate) optimise: bool,
}

impl Module {
    /// Reads PTX text.
    ///
    /// # Errors
    /// [`PtxError`] with the line: a syntax error, an unknown name, or an instruction that this version does not
    /// translate. Nothing of that kind is left for run time.
    pub fn parse(ptx: &str) -> Result<Module, PtxError> {
        Ok(Module { program: ptx::parse(ptx)?, optimise: true })
    }

    /// The same module, whose code will be made as it is written: for tests that compare.
    #[doc(hidden)]
    #[must_use]
    pub fn unoptimised(mut self) -> Module {
        self.optimise = false;
        // Code made in another way must have another key in the cache.
        self.program.digest = *blake3::hash(&self.program.digest).as_bytes();
        self
    }
}

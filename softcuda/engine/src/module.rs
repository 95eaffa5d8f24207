//! A parsed module.

use crate::error::{LoadError, PtxError};
use crate::ir::Program;
use crate::ptx::{self, Target};

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
        Module::link(&[ptx])
    }

    /// Reads PTX texts into one module. A name that is not `.visible`, `.extern`, `.weak` or `.common` is its text's own.
    ///
    /// # Errors
    /// As [`Module::parse`]; the line is that of the text in which the error was found.
    pub fn link(texts: &[&str]) -> Result<Module, PtxError> {
        Ok(Module { program: ptx::parse_all(texts)?, optimise: true })
    }

    /// A name that is used and only declared: loading would fail with it.
    pub fn undefined(&self) -> Option<String> {
        match crate::loaded::unresolved(&self.program) {
            Err(LoadError::Unresolved { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// For which architectures the texts were made.
    pub fn targets(&self) -> &[Target] {
        &self.program.targets
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

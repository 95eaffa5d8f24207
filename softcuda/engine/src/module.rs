//! A parsed module.

use crate::error::PtxError;
use crate::ir::Program;
use crate::ptx;

/// PTX text that has been read and checked, with nothing placed in memory yet.
#[derive(Debug, Clone)]
pub struct Module {
    pub(crate) program: Program,
}

impl Module {
    /// Reads PTX text.
    ///
    /// # Errors
    /// [`PtxError`] with the line: a syntax error, an unknown name, or an instruction that this version does not
    /// translate. Nothing of that kind is left for run time.
    pub fn parse(ptx: &str) -> Result<Module, PtxError> {
        Ok(Module { program: ptx::parse(ptx)? })
    }
}

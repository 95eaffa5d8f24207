//! The errors and faults that leave this crate.

use crate::ir::Lines;

/// A PTX text that is not accepted, and where. `cuModuleLoadData` answers 218 (`CUDA_ERROR_INVALID_PTX`) and puts
/// the `Display` text into the JIT error log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ptx {}line {line}: {message}", of_text(*text))]
pub struct PtxError {
    /// Of several texts that are linked the one in which it is, counted from 1; 0 where there is one only.
    pub text: u32,
    /// Line in the PTX text, counted from 1.
    pub line: u32,
    /// What is wrong there.
    pub message: String,
}

impl PtxError {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> Self {
        PtxError { text: 0, line, message: message.into() }
    }

    /// With a line that counts through all texts as one of its own text.
    pub(crate) fn located(self, lines: &Lines) -> Self {
        let (text, line) = lines.place(self.line);
        PtxError { text, line, ..self }
    }
}

/// How messages name one text of several.
pub(crate) fn of_text(text: u32) -> String {
    if text == 0 { String::new() } else { format!("text {text}, ") }
}

/// No room left in the device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("out of device memory: {wanted} bytes were asked for, {free} of {total} are free")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub wanted: u64,
    /// Bytes free at that time.
    pub free: u64,
    /// Size of the device memory.
    pub total: u64,
}

/// Why a parsed module could not be placed in memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Its variables do not fit.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// It uses something that this version does not translate.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    /// It names a function or variable that it only declares (`.extern`) and nobody defines.
    #[error("ptx {}line {line}: unresolved extern symbol `{name}`", of_text(*text))]
    Unresolved {
        /// See [`PtxError::text`].
        text: u32,
        /// Its name.
        name: String,
        /// Where it is used first.
        line: u32,
    },
}

/// What a grid died of; each has one CUDA error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside of every allocation: 700, `CUDA_ERROR_ILLEGAL_ADDRESS`. Stack overflow is reported so too.
    IllegalAddress,
    /// An access that is not aligned to its size: 716, `CUDA_ERROR_MISALIGNED_ADDRESS`.
    MisalignedAddress,
    /// `trap`: 719, `CUDA_ERROR_LAUNCH_FAILED`.
    Trap,
    /// A device-side assertion: 710, `CUDA_ERROR_ASSERT`. Its text is in [`crate::Realm::take_complaints`].
    Assert,
    /// Something that is no valid code, such as an indirect call of what is not a function: 715,
    /// `CUDA_ERROR_ILLEGAL_INSTRUCTION`.
    IllegalInstruction,
    /// Every thread waits for another one and nothing outside can wake them (a barrier that not all threads reach, a
    /// shuffle whose lanes never come): 702, `CUDA_ERROR_LAUNCH_TIMEOUT`. A card would hang.
    LaunchTimeout,
    /// A cooperative launch of more blocks than can be resident at once: 720,
    /// `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`.
    CooperativeTooLarge,
    /// The launch does not fit the kernel (block too large, parameters missing): 1, `CUDA_ERROR_INVALID_VALUE`.
    InvalidLaunch,
    /// The machine refused memory or threads that the engine needs: 2, `CUDA_ERROR_OUT_OF_MEMORY`.
    OutOfResources,
    /// A kernel could not be compiled though it was accepted when loaded (an error of this crate): 999,
    /// `CUDA_ERROR_UNKNOWN`.
    Internal,
    /// The engine was told to stop ([`crate::Engine::cancel`]).
    Cancelled,
}

/// How a grid ended when it did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Which CUDA error it is.
    pub kind: FaultKind,
    /// Kernel, block, thread, address and PTX line, as far as known.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Fault { kind, message: message.into() }
    }
}

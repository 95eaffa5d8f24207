//! A driver's answer as the plain number that crosses the C ABI and the wire. Never as cudarc's `CUresult`: a driver
//! newer than that list may answer a number that the enum does not have.

use cudarc::driver::sys::CUresult;
use gpupool_protocol::wire::LinkError;
use gpupool_protocol::wire::codec::BadRecord;

/// A `CUresult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($name:ident = $cuda:ident;)*) => {
        impl Code {
            $(#[doc = concat!("`", stringify!($cuda), "`.")] pub const $name: Code = Code(CUresult::$cuda as i32);)*
        }
    };
}

codes! {
    SUCCESS = CUDA_SUCCESS;
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE;
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY;
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE;
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT;
    INVALID_IMAGE = CUDA_ERROR_INVALID_IMAGE;
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE;
    ALREADY_MAPPED = CUDA_ERROR_ALREADY_MAPPED;
    HOST_MEMORY_ALREADY_REGISTERED = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    HOST_MEMORY_NOT_REGISTERED = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    NOT_FOUND = CUDA_ERROR_NOT_FOUND;
    NOT_READY = CUDA_ERROR_NOT_READY;
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED;
    UNKNOWN = CUDA_ERROR_UNKNOWN;
}

impl Code {
    /// `Err` unless it is success.
    #[inline]
    pub fn ok(self) -> Result<(), Fail> {
        if self == Code::SUCCESS { Ok(()) } else { Err(Fail::Code(self)) }
    }
}

/// Why a record did not do what it asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    /// CUDA's answer: the program's business.
    Code(Code),
    /// It uses an object whose posted creation failed with this code. A call answers it; a post is dropped, since the
    /// creation's failure is reported already.
    Poisoned(Code),
    /// No honest client sends this: it ends the session.
    Bad(BadRecord),
}

impl From<BadRecord> for Fail {
    fn from(bad: BadRecord) -> Self {
        Fail::Bad(bad)
    }
}

impl From<Code> for Fail {
    fn from(code: Code) -> Self {
        Fail::Code(code)
    }
}

impl From<LinkError> for Fail {
    /// The link is broken: nobody hears the code, and the ring's thread ends the session.
    fn from(_: LinkError) -> Self {
        Fail::Code(Code::UNKNOWN)
    }
}

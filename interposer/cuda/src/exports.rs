//! Every symbol of `cuda.h`, made from the call list and the symbol table.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use cuda_abi::symbols::Implemented;
use cudarc::driver::sys::{CUdeviceptr, CUresult, CUuuid};
use gpupool_protocol::api::kinds::{self, Bits, DevicePtr, Elements, OptOut, Out, Pitch, Within, plane, row};

use crate::args::ClientArg;
use crate::calls;
use crate::code::Answer;
use crate::cptr::{FromC, Raw};
use crate::cx::{Cx, Enter};
use crate::entry;
use crate::send;

// In the rows of the call list these names mean handles as the client sees them; they are pointers to C.
type CUcontext = Raw<kinds::Context>;
type CUstream = Raw<kinds::Stream>;
type CUevent = Raw<kinds::Event>;
type CUmodule = Raw<kinds::Module>;
type CUlibrary = Raw<kinds::Library>;
type CUfunction = Raw<kinds::Function>;
type CUkernel = Raw<kinds::Function>;
type CUmemoryPool = Raw<kinds::MemPool>;
type CUlinkState = Raw<calls::link::Link>;
type CUlaunchConfig = calls::LaunchConfig;
#[allow(non_camel_case_types)]
type CUDA_MEMCPY2D = calls::Copy2d;
#[allow(non_camel_case_types)]
type CUDA_MEMCPY3D = calls::Copy3d;
type CUgraph = Raw<()>;
type CUgraphNode = Raw<()>;

use kinds::{Event, Function, MemPool, Stream};

macro_rules! per_thread {
    (legacy) => {
        false
    };
    (per_thread) => {
        true
    };
}

/// Writes `name: value, ` pairs.
macro_rules! arguments {
    ($($param:ident)*) => {
        &move |_f: &mut std::fmt::Formatter<'_>| {
            $(write!(_f, concat!(stringify!($param), ": {:?}, "), $param)?;)*
            Ok(())
        }
    };
}

macro_rules! hand_symbols {
    ($({ $symbol:ident $mode:ident $class:ident $name:ident ($($param:ident: $ty:ty),*) })*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`: see the CUDA driver API manual.")]
        ///
        /// # Safety
        /// The arguments are what the manual demands.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $symbol($($param: $ty),*) -> u32 {
            // Apart from what catches its panics: then its arguments stay in registers.
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn body($($param: $ty),*) -> u32 {
                entry::number(move || -> Answer {
                    let cx = Enter::enter(per_thread!($mode))?;
                    // SAFETY: the caller vouches for the arguments.
                    calls::$name(cx, $(unsafe { FromC::into_body($param) }),*)
                })
            }
            // Apart, since it needs the arguments in memory.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn watched($($param: $ty),*) -> u32 {
                // SAFETY: the caller vouches for the arguments.
                let call = move || unsafe { body($($param),*) };
                entry::watched(stringify!($symbol), arguments!($($param)*), call)
            }
            if entry::may_be_traced() {
                // SAFETY: as above.
                return unsafe { watched($($param),*) };
            }
            // SAFETY: as above.
            entry::run(stringify!($symbol), move || unsafe { body($($param),*) })
        }
    )*};
}

macro_rules! auto_symbols {
    ($({ $symbol:ident $mode:ident $class:ident $name:ident ($($param:ident: $kind:ty [$extent:expr]),*) })*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`: see the CUDA driver API manual.")]
        ///
        /// # Safety
        /// The arguments are what the manual demands.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $symbol($($param: <$kind as ClientArg>::C),*) -> u32 {
            // Apart from what catches its panics: then its arguments stay in registers.
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn body($($param: <$kind as ClientArg>::C),*) -> u32 {
                entry::number(move || -> Answer {
                    let cx = Cx::enter(per_thread!($mode))?;
                    cx.current()?;
                    // SAFETY: the caller vouches for the arguments.
                    $(let $param = unsafe { FromC::into_body($param) };)*
                    #[allow(unused_mut)]
                    let ($(mut $param,)*) = ($(<$kind as ClientArg>::check(cx, $param, $extent)?,)*);
                    send::$name(cx, $(<$kind as ClientArg>::arg(&mut $param)),*)?;
                    $(<$kind as ClientArg>::store($param);)*
                    Ok(())
                })
            }
            // Apart, since it needs the arguments in memory.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn watched($($param: <$kind as ClientArg>::C),*) -> u32 {
                // SAFETY: the caller vouches for the arguments.
                let call = move || unsafe { body($($param),*) };
                entry::watched(stringify!($symbol), arguments!($($param)*), call)
            }
            if entry::may_be_traced() {
                // SAFETY: as above.
                return unsafe { watched($($param),*) };
            }
            // SAFETY: as above.
            entry::run(stringify!($symbol), move || unsafe { body($($param),*) })
        }
    )*};
}

/// What `cudaProfiler.h` declares, in the form of the call list's rows: no function of `cuda.h`, so not in its symbol table.
macro_rules! for_each_profiler_symbol {
    ($then:ident) => {
        $then! {
            { cuProfilerInitialize legacy local cuProfilerInitialize (configuration: *const c_char, output: *const c_char, mode: u32) }
            { cuProfilerStart legacy local cuProfilerStart () }
            { cuProfilerStop legacy local cuProfilerStop () }
        }
    };
}

gpupool_protocol::for_each_hand_symbol!(hand_symbols);
gpupool_protocol::for_each_auto_symbol!(auto_symbols);
for_each_profiler_symbol!(hand_symbols);

macro_rules! functions {
    ($({ $symbol:ident $mode:ident $class:ident $name:ident ($($rest:tt)*) })*) => {
        &[$((stringify!($symbol), $symbol as *const c_void)),*]
    };
}

/// The address of a function, to be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address(pub *const c_void);

// SAFETY: nothing is read or written through it here.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Addresses that are shared between threads.
struct Addresses(&'static [(&'static str, *const c_void)]);

// SAFETY: addresses of functions, never written.
unsafe impl Sync for Addresses {}

static HAND: Addresses = Addresses(gpupool_protocol::for_each_hand_symbol!(functions));
static AUTO: Addresses = Addresses(gpupool_protocol::for_each_auto_symbol!(functions));
static PROFILER: Addresses = Addresses(for_each_profiler_symbol!(functions));

/// The addresses of the exported symbols that do something.
#[inline]
pub fn addresses() -> &'static Implemented<Address> {
    static ADDRESSES: OnceLock<Implemented<Address>> = OnceLock::new();
    ADDRESSES.get_or_init(|| {
        let all = HAND.0.iter().chain(AUTO.0).chain(PROFILER.0);
        Implemented::new(all.map(|(name, at)| (*name, Address(*at))))
    })
}

macro_rules! refused {
    ($prefix:tt $({ $symbol:ident $mode:ident $class:ident $name:ident ($($rest:tt)*) })*) => {
        gpupool_protocol::for_each_auto_symbol!(refused_too $prefix $($symbol)*);
    };
}

macro_rules! refused_too {
    ([$path:path] $($hand:ident)* $({ $symbol:ident $mode:ident $class:ident $name:ident ($($rest:tt)*) })*) => {
        cuda_abi::refuse_rest! { $path; $($hand)* $($symbol)* }
    };
}

gpupool_protocol::for_each_hand_symbol!(refused[crate::entry::refuse]);

//! The profiler's switches, which are not in `cuda.h`.

use crate::current;
use std::ffi::c_char;

exports! { ($) profiler_names, initialised;
    cuProfilerInitialize(_configuration: *const c_char, _output: *const c_char, _mode: u32) {
        current::healthy().map(drop)
    }
    cuProfilerStart() { current::healthy().map(drop) }
    cuProfilerStop() { current::healthy().map(drop) }
}

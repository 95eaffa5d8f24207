//! Stream memory operations.

use super::graph_params::read_words;
use super::on;
use crate::error::*;
use crate::words::{self, Raw, Word};
use cudarc::driver::sys::CUstream;

exports! { ($) words_names, initialised;
    cuStreamWaitValue32_v2(stream: CUstream, address: u64, value: u32, flags: u32) [cuStreamWaitValue32_v2_ptsz, default] {
        one(words::WAIT_32, address, u64::from(value), flags, on(stream, default))
    }
    cuStreamWaitValue64_v2(stream: CUstream, address: u64, value: u64, flags: u32) [cuStreamWaitValue64_v2_ptsz, default] {
        one(words::WAIT_64, address, value, flags, on(stream, default))
    }
    cuStreamWriteValue32_v2(stream: CUstream, address: u64, value: u32, flags: u32) [cuStreamWriteValue32_v2_ptsz, default] {
        one(words::WRITE_32, address, u64::from(value), flags, on(stream, default))
    }
    cuStreamWriteValue64_v2(stream: CUstream, address: u64, value: u64, flags: u32) [cuStreamWriteValue64_v2_ptsz, default] {
        one(words::WRITE_64, address, value, flags, on(stream, default))
    }
    cuStreamBatchMemOp_v2(
        stream: CUstream, count: u32, list: *const Raw, flags: u32
    ) [cuStreamBatchMemOp_v2_ptsz, default] { words::submit(read_words(list, count)?, flags, on(stream, default)) }
    cuStreamWaitValue32(stream: CUstream, address: u64, value: u32, flags: u32) [cuStreamWaitValue32_ptsz, default] {
        one(words::WAIT_32, address, u64::from(value), flags, on(stream, default))
    }
    cuStreamWaitValue64(stream: CUstream, address: u64, value: u64, flags: u32) [cuStreamWaitValue64_ptsz, default] {
        one(words::WAIT_64, address, value, flags, on(stream, default))
    }
    cuStreamWriteValue32(stream: CUstream, address: u64, value: u32, flags: u32) [cuStreamWriteValue32_ptsz, default] {
        one(words::WRITE_32, address, u64::from(value), flags, on(stream, default))
    }
    cuStreamWriteValue64(stream: CUstream, address: u64, value: u64, flags: u32) [cuStreamWriteValue64_ptsz, default] {
        one(words::WRITE_64, address, value, flags, on(stream, default))
    }
    cuStreamBatchMemOp(
        stream: CUstream, count: u32, list: *const Raw, flags: u32
    ) [cuStreamBatchMemOp_ptsz, default] { words::submit(read_words(list, count)?, flags, on(stream, default)) }
}

fn one(kind: u32, address: u64, value: u64, flags: u32, stream: usize) -> Result {
    words::submit(vec![Word { kind, address, value, flags }.raw()], 0, stream)
}

//! Stream memory operations.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;

#[test]
fn a_stream_waits_for_a_word_that_the_host_writes_and_one_that_a_stream_writes() {
    let _context = context();
    let (one, two) = (stream(1), stream(1));
    let memory = alloc(16);
    ok!(cuMemsetD8_v2(memory, 0, 16));
    let mut page = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut page, 4096, 0));
    let word = page.cast::<u64>();
    unsafe { word.write_volatile(6) };
    let address = page.expose_provenance() as u64;
    // Equal to 7; at least 7 would be another question.
    ok!(cuStreamWaitValue64_v2(one, address, 7, 1));
    ok!(cuStreamWriteValue32_v2(one, memory, 42, 0));
    ok!(cuStreamWaitValue32_v2(two, memory, 42, 0));
    ok!(cuStreamWriteValue64_v2(two, memory + 8, u64::MAX, 0));
    assert_eq!(cu!(cuStreamQuery(two)), CUDA_ERROR_NOT_READY);
    unsafe { word.write_volatile(7) };
    ok!(cuStreamSynchronize(two));
    let bytes = read(memory, 16);
    assert_eq!((bytes[0], &bytes[8..]), (42, &[255; 8][..]));
}

#[test]
fn a_batch_is_done_in_order_and_wrong_ones_are_refused_as_a_whole() {
    let _context = context();
    let memory = alloc(16);
    ok!(cuMemsetD8_v2(memory, 0, 16));
    let batch: [[u64; 6]; 3] =
        [[2, memory, 9, 0, 0, 0], [1, memory, 9, 1, 0, 0], [5, memory + 8, 1 << 40, 0, 0, 0]];
    ok!(cuStreamBatchMemOp_v2(0, 3, batch.as_ptr(), 0));
    ok!(cuCtxSynchronize());
    let bytes = read(memory, 16);
    assert_eq!((bytes[0], bytes[13]), (9, 1));
    let refused = |op: [u64; 6]| cu!(cuStreamBatchMemOp_v2(0, 1, &op, 0));
    assert_eq!(refused([2, memory + 2, 0, 0, 0, 0]), CUDA_ERROR_INVALID_VALUE, "not aligned");
    assert_eq!(refused([2, 4096, 0, 0, 0, 0]), CUDA_ERROR_INVALID_VALUE, "nobody's");
    assert_eq!(refused([1, memory, 0, 7, 0, 0]), CUDA_ERROR_INVALID_VALUE, "no such comparison");
    assert_eq!(refused([77, memory, 0, 0, 0, 0]), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(refused([1, memory, 0, 1 << 30, 0, 0]), CUDA_ERROR_NOT_SUPPORTED, "flush");
    assert_eq!(cu!(cuStreamBatchMemOp_v2(0, 0, batch.as_ptr(), 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuStreamBatchMemOp_v2(0, 1, batch.as_ptr(), 1)), CUDA_ERROR_INVALID_VALUE);
}

//! Streams, and waiting for them.

macro_rules! list_stream {
    ([$next:ident $($rest:ident)*] $($list:tt)*) => { $next! { [$($rest)*] $($list)*

600 post(hand) record stream_create(stream: New<Stream>, flags: u32, priority: i32);
601 post(hand) record stream_destroy(stream: Delete<Stream>);
/// Answers when all that was posted to the stream before is done, with what the driver's synchronise says.
602 call(slow, hand) record stream_synchronize(stream: Stream);
603 call(slow, hand) record context_synchronize();
/// Asks that the board word `word` be raised to `value` when all that was posted to the stream before is done.
604 post(hand) record stream_watch(stream: Stream, word: u32, value: u64);
/// What the driver's query of the stream says now: success, not ready, or an error.
606 call(hand) record stream_query(stream: Stream);
605 post cuStreamWaitEvent | cuStreamWaitEvent_ptsz(stream: Stream, event: Event, flags: Bits<1>);
/// Answers when all that was posted in the context before is done. Says nothing of what earlier posts have failed with: that is
/// for the program's own calls to find.
607 call(slow, hand) record context_settle();
hand post cuStreamCreate(stream: *mut CUstream, flags: u32) using stream_create;
hand post cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32) using stream_create;
hand post cuStreamDestroy_v2, cuStreamDestroy(stream: CUstream) using stream_destroy;
hand call cuStreamSynchronize | cuStreamSynchronize_ptsz(stream: CUstream) using stream_synchronize;
hand call cuStreamQuery | cuStreamQuery_ptsz(stream: CUstream) using stream_query, stream_watch;
hand call cuCtxSynchronize() using context_synchronize;
hand call cuCtxSynchronize_v2(context: CUcontext) using context_synchronize;
local cuStreamGetFlags | cuStreamGetFlags_ptsz(stream: CUstream, flags: *mut u32);
local cuStreamGetPriority | cuStreamGetPriority_ptsz(stream: CUstream, priority: *mut i32);
local cuStreamGetId | cuStreamGetId_ptsz(stream: CUstream, id: *mut u64);
local cuStreamGetCtx | cuStreamGetCtx_ptsz(stream: CUstream, context: *mut CUcontext);
local cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz(stream: CUstream, context: *mut CUcontext, green: *mut *mut c_void);
local cuStreamGetDevice | cuStreamGetDevice_ptsz(stream: CUstream, device: *mut i32);
local cuStreamIsCapturing | cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut u32);
local cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz(stream: CUstream, status: *mut u32, id: *mut u64);
local cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz(stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, count: *mut usize);
local cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz(stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, edges: *mut *const c_void, count: *mut usize);
local cuThreadExchangeStreamCaptureMode(mode: *mut u32);

    }};
}

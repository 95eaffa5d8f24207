//! Copies between host and device, and memory sets.

macro_rules! list_copy {
    ([$next:ident $($rest:ident)*] $($list:tt)*) => { $next! { [$($rest)*] $($list)*

/// A piece of a copy to the device, in the order of `stream`. The bytes are taken from the record or its chunk, so the
/// caller's buffer is free when the record is posted.
300 post(hand) record copy_in(destination: u64, bytes: BulkIn, stream: Stream);
/// A piece of a copy from the device; answered when its bytes are there.
301 call(slow, hand) record copy_out(source: u64, length: u64, stream: Stream, bytes: BulkOut);
302 post cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz(destination: DevicePtr [n], source: DevicePtr [n], n: usize, stream: Stream);
/// Device to device on the legacy stream; asynchronous to the host, as CUDA has it.
303 post(hand) record copy_device(destination: u64, source: u64, length: u64, stream: Stream);
/// A copy from locked memory of the host arena to the device: read when the stream comes to it.
304 post(hand) record copy_from_host(destination: u64, source: u64, length: u64, stream: Stream);
/// A copy from the device to locked memory of the host arena. It has no answer: the client sees the bytes when the stream has
/// come past it.
305 post(hand) record copy_to_host(destination: u64, source: u64, length: u64, stream: Stream);
/// A copy from the device to memory that only the client has: its bytes go to `landing` when the stream has come to it, and
/// are there before the stream goes on. Where the link receives bytes, and only there.
306 post(hand) record copy_to_landing(landing: u64, source: u64, length: u64, stream: Stream);
hand post cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(destination: CUdeviceptr, source: *const c_void, n: usize) using copy_in, copy_from_host;
hand post cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz(destination: CUdeviceptr, source: *const c_void, n: usize, stream: CUstream) using copy_in, copy_from_host;
hand call cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(destination: *mut c_void, source: CUdeviceptr, n: usize) using copy_out, copy_to_host;
hand call cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz(destination: *mut c_void, source: CUdeviceptr, n: usize, stream: CUstream) using copy_out, copy_to_host, copy_to_landing;
hand post cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(destination: CUdeviceptr, source: CUdeviceptr, n: usize) using copy_device;
hand call cuMemcpy | cuMemcpy_ptds(destination: CUdeviceptr, source: CUdeviceptr, n: usize) using copy_in, copy_out, copy_from_host, copy_to_host, copy_device;
hand call cuMemcpyAsync | cuMemcpyAsync_ptsz(destination: CUdeviceptr, source: CUdeviceptr, n: usize, stream: CUstream) using copy_in, copy_out, copy_from_host, copy_to_host, copy_to_landing, copy_device;
hand call cuMemcpy2D_v2, cuMemcpy2DUnaligned_v2 | cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2_ptds(copy: *const CUDA_MEMCPY2D) using copy_in, copy_out, copy_from_host, copy_to_host, copy_device;
hand call cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz(copy: *const CUDA_MEMCPY2D, stream: CUstream) using copy_in, copy_out, copy_from_host, copy_to_host, copy_device;
hand call cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(copy: *const CUDA_MEMCPY3D) using copy_in, copy_out, copy_from_host, copy_to_host, copy_device;
hand call cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz(copy: *const CUDA_MEMCPY3D, stream: CUstream) using copy_in, copy_out, copy_from_host, copy_to_host, copy_device;

310 post cuMemsetD8Async | cuMemsetD8Async_ptsz(destination: DevicePtr [n], value: u8, n: usize, stream: Stream);
311 post cuMemsetD16Async | cuMemsetD16Async_ptsz(destination: Elements<2> [n.saturating_mul(2)], value: u16, n: usize, stream: Stream);
312 post cuMemsetD32Async | cuMemsetD32Async_ptsz(destination: Elements<4> [n.saturating_mul(4)], value: u32, n: usize, stream: Stream);
313 post cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz(destination: DevicePtr [plane(pitch, width, height)], pitch: Pitch [row(width, height)], value: u8, width: usize, height: usize, stream: Stream);
314 post cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz(destination: Elements<2> [plane(pitch, width.saturating_mul(2), height)], pitch: Pitch [row(width.saturating_mul(2), height)], value: u16, width: usize, height: usize, stream: Stream);
315 post cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz(destination: Elements<4> [plane(pitch, width.saturating_mul(4), height)], pitch: Pitch [row(width.saturating_mul(4), height)], value: u32, width: usize, height: usize, stream: Stream);
/// Sets `n` elements of 1, 2 or 4 bytes, in `height` rows, on the default stream; asynchronous to the host, as CUDA has it.
316 post(hand) record set(destination: u64, pitch: u64, element: u32, value: u32, width: u64, height: u64, stream: Stream);
hand post cuMemsetD8_v2 | cuMemsetD8_v2_ptds(destination: CUdeviceptr, value: u8, n: usize) using set;
hand post cuMemsetD16_v2 | cuMemsetD16_v2_ptds(destination: CUdeviceptr, value: u16, n: usize) using set;
hand post cuMemsetD32_v2 | cuMemsetD32_v2_ptds(destination: CUdeviceptr, value: u32, n: usize) using set;
hand post cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(destination: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) using set;
hand post cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds(destination: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) using set;
hand post cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds(destination: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) using set;

    }};
}

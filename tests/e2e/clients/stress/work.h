// Work on the device and objects: kernels, host functions, streams, events, modules, contexts, pools; and calls that must fail.
#pragma once
#include "memory.h"

// `mix`: each of n words at p becomes itself times 1664525 plus k. `constant` is another number for each text.
inline std::string ptx(unsigned constant) {
  return ".version 8.0\n.target sm_75\n.address_size 64\n.global .align 4 .u32 constant = " + std::to_string(constant) + R"(;
.visible .entry mix(.param .u64 p, .param .u32 n, .param .u32 k) {
  .reg .u64 %rd<4>; .reg .u32 %r<8>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [k];
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.u32 %r3, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r3, %r1; @%p1 bra done;
  mul.wide.u32 %rd2, %r3, 4; cvta.to.global.u64 %rd1, %rd1; add.u64 %rd1, %rd1, %rd2;
  ld.global.u32 %r6, [%rd1]; mad.lo.u32 %r6, %r6, 1664525, %r2; st.global.u32 [%rd1], %r6;
done:
  ret;
}
)";
}

inline CUmodule load(Thread& t, unsigned constant, CUfunction* mix) {
  CUmodule module;
  OK(cuModuleLoadData, &module, ptx(constant).c_str());
  OK(cuModuleGetFunction, mix, module, "mix");
  return module;
}

inline void launch_on(Thread& t, CUfunction mix, Buffer& b) {
  if (b.size() < 4) return;
  auto [at, n] = some_range(t, b.size() / 4, 1 << 16);
  unsigned count = (unsigned)n, k = (unsigned)t.random.next(), block = 32u << t.random.below(4), grid = (count + block - 1) / block;
  CUdeviceptr d = b.address + at * 4;
  StreamRef s = t.stream();
  order(t, b, s);
  t.note("launch %llx + %u words on %p", (unsigned long long)d, count, (void*)s->handle);
  if (t.random.one_in(3)) {
    struct { CUdeviceptr d; unsigned n, k; } packed{d, count, k}; size_t size = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel, mix, grid, 1, 1, block, 1, 1, 0, s->handle, nullptr, extra);
  } else {
    void* parameters[] = {&d, &count, &k};
    OK(cuLaunchKernel, mix, grid, 1, 1, block, 1, 1, 0, s->handle, parameters, nullptr);
  }
  for (size_t i = at; i < at + n; i++) {
    uint32_t word; std::memcpy(&word, &b.bytes[i * 4], 4); word = word * 1664525u + k; std::memcpy(&b.bytes[i * 4], &word, 4);
  }
}

inline void launch(Thread& t, CUfunction mix) {
  if (Buffer* b = some_buffer(t, true)) launch_on(t, mix, *b);
}

// A host function that looks at pinned memory: what was copied there before it on its stream has arrived.
struct Look { Thread* thread; StreamRef stream; const uint8_t* at; std::vector<uint8_t> want; };
inline void CUDA_CB look(void* data) {
  std::unique_ptr<Look> l(static_cast<Look*>(data));
  l->thread->same(l->at, l->want.data(), l->want.size(), "pinned memory, seen by a host function");
  l->stream->ran++;
}
inline void host_function(Thread& t) {
  Buffer *b = some_buffer(t, false), *from = some_buffer(t, true);
  if (!b || !from) return;
  StreamRef s = t.stream();
  order(t, *b, s); order(t, *from, s);
  size_t n = from->size() < b->size() ? from->size() : b->size();
  n = n < 65536 ? n : 65536;
  t.note("host function behind a copy of %llx + %zu on %p", (unsigned long long)from->address, n, (void*)s->handle);
  OK(cuMemcpyDtoHAsync, b->host(), from->address, n, s->handle);
  std::memcpy(b->bytes.data(), from->bytes.data(), n);
  s->posted++;
  OK(cuLaunchHostFunc, s->handle, look, new Look{&t, s, b->host(), {b->bytes.begin(), b->bytes.begin() + (long)n}});
}

inline void new_stream(Thread& t) {
  if (t.streams.size() >= 6) return;
  auto s = std::make_shared<Stream>();
  s->blocking = t.random.one_in(2);
  OK(cuStreamCreate, &s->handle, s->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
  t.note("stream %p", (void*)s->handle);
  t.streams.push_back(s);
}

// Its work goes on; its handle is no longer one.
inline void end_stream(Thread& t) {
  if (t.streams.size() <= 2) return;
  size_t i = 2 + t.random.below(t.streams.size() - 2);
  StreamRef s = t.streams[i];
  t.note("end of stream %p", (void*)s->handle);
  OK(cuStreamDestroy, s->handle);
  s->alive = false;
  t.streams.erase(t.streams.begin() + (long)i);
}

inline void events(Thread& t) {
  CUevent first, second, untimed; float ms = -1;
  OK(cuEventCreate, &first, 0); OK(cuEventCreate, &second, 0); OK(cuEventCreate, &untimed, CU_EVENT_DISABLE_TIMING);
  OK(cuEventQuery, first);
  GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime, &ms, first, second);
  StreamRef s = t.stream();
  OK(cuEventRecord, first, s->handle);
  set(t);
  OK(cuEventRecord, second, s->handle); OK(cuEventRecord, untimed, s->handle);
  OK(cuEventSynchronize, second);
  OK(cuEventElapsedTime, &ms, first, second);
  if (!(ms >= 0 && ms < 600e3)) t.fail("%f ms between two events", ms);
  GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime, &ms, first, untimed);
  OK(cuEventDestroy, first); OK(cuEventDestroy, second); OK(cuEventDestroy, untimed);
}

// A module of this thread's own, or one that many load.
inline void module(Thread& t) {
  unsigned constant = t.random.one_in(2) ? 7 : (unsigned)t.random.next();
  CUfunction mix, none; CUdeviceptr at; size_t n = 0; unsigned value = 0;
  t.note("module with %u", constant);
  CUmodule m = load(t, constant, &mix);
  GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &none, m, "nothing");
  OK(cuModuleGetGlobal, &at, &n, m, "constant");
  if (n != 4) t.fail("a variable of %zu bytes", n);
  OK(cuMemcpyDtoH, &value, at, 4);
  if (value != constant) t.fail("a variable holds %u instead of %u", value, constant);
  OK(cuMemsetD32, at, ~constant, 1); OK(cuMemcpyDtoH, &value, at, 4);
  if (value != ~constant) t.fail("a variable holds %u instead of %u", value, ~constant);
  launch(t, mix);
  OK(cuCtxSynchronize);
  OK(cuModuleUnload, m);
}

// A context of this thread's own, with memory and a stream of its own, on top of the one that all share.
inline void context(Thread& t) {
  CUcontext own, now; CUdeviceptr p; CUstream s; std::vector<unsigned> got(1000);
  t.note("context");
#if CUDA_VERSION >= 13000
  OK(cuCtxCreate, &own, nullptr, 0, 0);
#else
  OK(cuCtxCreate, &own, 0, 0);
#endif
  OK(cuCtxGetCurrent, &now);
  if (now != own) t.fail("a new context is not current");
  OK(cuMemAlloc, &p, got.size() * 4); OK(cuStreamCreate, &s, 0);
  OK(cuMemsetD32Async, p, 42, got.size(), s); OK(cuStreamSynchronize, s);
  OK(cuCtxPopCurrent, &now);
  set(t);
  OK(cuCtxPushCurrent, own);
  OK(cuMemcpyDtoH, got.data(), p, got.size() * 4);
  for (unsigned word : got) if (word != 42) t.fail("%u in memory of another context", word);
  OK(cuCtxDestroy, own);
  OK(cuCtxGetCurrent, &now);
  if (now != t.common.context) t.fail("the context below is not current");
}

// How much the device's pool keeps; its memory is what `allocate` takes on streams.
inline void pools(Thread& t) {
  uint64_t threshold = t.random.size(64 << 20), kept = 0;
  t.note("a pool that keeps %llu", (unsigned long long)threshold);
  CUmemoryPool pool, same;
  OK(cuDeviceGetDefaultMemPool, &pool, 0); OK(cuDeviceGetMemPool, &same, 0);
  if (pool != same) t.fail("the device's pool is not its default one");
  OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
  OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept);
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute, pool, (CUmemPool_attribute)4711, &threshold);
}

// What cannot succeed, with the code that CUDA has for it.
inline void wrong(Thread& t, CUfunction mix) {
  CUdeviceptr p = 0; CUmodule m; CUcontext c; void* none[] = {nullptr};
  t.note("wrong calls");
  switch (t.random.below(7)) {
    case 0: GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc, &p, 0); break;
    case 1: GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &p, size_t(1) << 46); break;
    case 2: OK(cuMemFree, 0); GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree, 4711); break;
    case 3: GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, mix, 1, 1, 1, 4096, 1, 1, 0, nullptr, none, nullptr); break;
    case 4: GIVES(CUDA_ERROR_INVALID_PTX, cuModuleLoadData, &m, ".version 8.0\n.target sm_75\n.address_size 64\nnothing of the kind\n"); break;
    case 5:
      OK(cuCtxPopCurrent, &c);
      GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc, &p, 4); GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize);
      OK(cuCtxPushCurrent, c); break;
    case 6:
      if (Buffer* b = some_buffer(t, true); b && b->size() > 8) {
        GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD32, b->address + 1, 0, 1);
        GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD16Async, b->address + 1, 0, 1, nullptr);
      }
      break;
  }
}

// A buffer goes to another thread, with an event behind its latest use; or one comes.
inline void exchange(Thread& t) {
  Parcel p;
  auto lock = [&] { while (t.common.post_lock.test_and_set()) sched_yield(); };
  if (t.random.one_in(2) || t.buffers.size() < 3) {
    if (t.buffers.size() >= BUFFERS) return;
    lock();
    if (!t.common.post.empty()) { p = std::move(t.common.post.back()); t.common.post.pop_back(); }
    t.common.post_lock.clear();
    if (!p.ready) return;
    t.note("comes %llx + %zu", (unsigned long long)p.buffer.address, p.buffer.size());
    StreamRef s = t.stream();
    if (t.random.one_in(2)) { OK(cuStreamWaitEvent, s->handle, p.ready, 0); p.buffer.last = s; }
    else OK(cuEventSynchronize, p.ready);
    OK(cuEventDestroy, p.ready);
    t.buffers.push_back(std::move(p.buffer));
    return;
  }
  size_t i = t.random.below(t.buffers.size());
  p.buffer = std::move(t.buffers[i]);
  t.buffers.erase(t.buffers.begin() + (long)i);
  t.note("goes %llx + %zu", (unsigned long long)p.buffer.address, p.buffer.size());
  if (p.buffer.last && !p.buffer.last->alive) settle(t, p.buffer);
  p.ready = record(t, p.buffer.last ? p.buffer.last : t.stream());
  p.buffer.last = nullptr;
  lock();
  t.common.post.push_back(std::move(p));
  t.common.post_lock.clear();
}

// Memory of every kind: made, set, copied, compared and given back.
#pragma once
#include "model.h"
#include <sys/mman.h>

constexpr size_t MOST = 8 << 20;
constexpr size_t BUFFERS = 12;

inline Buffer* some_buffer(Thread& t, bool on_device) {
  std::vector<Buffer*> fit;
  for (auto& b : t.buffers) if (b.on_device() == on_device) fit.push_back(&b);
  return fit.empty() ? nullptr : fit[t.random.below(fit.size())];
}

struct Range { size_t at, n; };
inline Range some_range(Thread& t, size_t size, size_t most = MOST) {
  size_t n = t.random.size(size < most ? size : most);
  return {t.random.below(size - n + 1), n};
}

inline StreamRef legacy(Thread& t) { return t.streams[0]; }

inline void set_all(Thread& t, Buffer& b) {
  uint8_t value = (uint8_t)t.random.next();
  if (b.on_device()) {
    StreamRef s = t.stream();
    order(t, b, s);
    OK(cuMemsetD8Async, b.address, value, b.size(), s->handle);
  } else std::memset(b.host(), value, b.size());
  std::fill(b.bytes.begin(), b.bytes.end(), value);
}

inline void allocate(Thread& t) {
  if (t.buffers.size() >= BUFFERS) return;
  Buffer b; size_t n = t.random.size(MOST); size_t page = 4096;
  b.bytes.resize(n);
  switch (t.random.below(8)) {
    default: OK(cuMemAlloc, &b.address, n); break;
    case 4: {
      size_t pitch, width = 1 + t.random.below(5000), height = 1 + n / width;
      OK(cuMemAllocPitch, &b.address, &pitch, width, height, 4 << t.random.below(3));
      if (pitch < width) t.fail("a pitch of %zu for %zu", pitch, width);
      b.bytes.resize(pitch * height); break;
    }
    case 5: {
      b.kind = Kind::Pooled; b.last = t.stream();
      CUmemoryPool pool;
      OK(cuDeviceGetDefaultMemPool, &pool, 0);
      if (t.random.one_in(2)) OK(cuMemAllocFromPoolAsync, &b.address, n, pool, b.last->handle);
      else OK(cuMemAllocAsync, &b.address, n, b.last->handle);
      break;
    }
    case 6: {
      void* p; b.kind = Kind::Pinned;
      if (t.random.one_in(2)) OK(cuMemAllocHost, &p, n);
      else OK(cuMemHostAlloc, &p, n, t.random.one_in(2) ? CU_MEMHOSTALLOC_PORTABLE : 0);
      b.address = (CUdeviceptr)p; break;
    }
    case 7: {
      size_t whole = (n + page - 1) / page * page;
      void* p = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED) t.fail("no memory");
      b.kind = Kind::Registered; b.address = (CUdeviceptr)p; b.bytes.resize(whole);
      OK(cuMemHostRegister, p, whole, 0); break;
    }
  }
  t.note("alloc kind %d %llx + %zu", (int)b.kind, (unsigned long long)b.address, b.size());
  set_all(t, b);
  t.buffers.push_back(std::move(b));
}

inline void give_back(Thread& t, Buffer b) {
  t.note("free kind %d %llx + %zu", (int)b.kind, (unsigned long long)b.address, b.size());
  switch (b.kind) {
    // Work that uses it may still be under way: cuMemFree waits for that.
    case Kind::Device: OK(cuMemFree, b.address); break;
    case Kind::Pooled:
      if (t.random.one_in(2)) { StreamRef s = t.stream(); order(t, b, s); OK(cuMemFreeAsync, b.address, s->handle); }
      else { settle(t, b); OK(cuMemFree, b.address); }
      break;
    case Kind::Pinned: settle(t, b); OK(cuMemFreeHost, b.host()); break;
    case Kind::Registered: settle(t, b); OK(cuMemHostUnregister, b.host()); munmap(b.host(), b.size()); break;
  }
}

inline void free_one(Thread& t) {
  if (t.buffers.size() < 4 && !t.random.one_in(8)) return;
  if (t.buffers.empty()) return;
  size_t i = t.random.below(t.buffers.size());
  Buffer b = std::move(t.buffers[i]);
  t.buffers.erase(t.buffers.begin() + (long)i);
  give_back(t, std::move(b));
}

// cuMemset of every width, in rows or not, on a stream or not.
inline void set(Thread& t) {
  Buffer* b = some_buffer(t, true);
  if (!b) return;
  size_t width = size_t(1) << t.random.below(3), elements = b->size() / width;
  if (!elements) return;
  auto [at, n] = some_range(t, elements);
  uint32_t value = (uint32_t)t.random.next();
  bool on_stream = t.random.one_in(2);
  StreamRef s = on_stream ? t.stream() : legacy(t);
  order(t, *b, s);
  CUdeviceptr d = b->address + at * width; CUstream h = s->handle;
  // A set in rows where there is room for some.
  size_t height = n >= 64 && t.random.one_in(3) ? 1 + t.random.below(8) : 1, pitch = n / height, row = height == 1 ? n : 1 + t.random.below(pitch);
  t.note("set %llx + %zu x %zu in %zu rows on %p%s", (unsigned long long)d, row, width, height, (void*)h, on_stream ? "" : ", synchronous");
  if (height > 1) {
    size_t p = pitch * width; auto v8 = (uint8_t)value; auto v16 = (uint16_t)value;
    if (width == 1) { if (on_stream) OK(cuMemsetD2D8Async, d, p, v8, row, height, h); else OK(cuMemsetD2D8, d, p, v8, row, height); }
    if (width == 2) { if (on_stream) OK(cuMemsetD2D16Async, d, p, v16, row, height, h); else OK(cuMemsetD2D16, d, p, v16, row, height); }
    if (width == 4) { if (on_stream) OK(cuMemsetD2D32Async, d, p, value, row, height, h); else OK(cuMemsetD2D32, d, p, value, row, height); }
  } else {
    if (width == 1) { if (on_stream) OK(cuMemsetD8Async, d, (uint8_t)value, n, h); else OK(cuMemsetD8, d, (uint8_t)value, n); }
    if (width == 2) { if (on_stream) OK(cuMemsetD16Async, d, (uint16_t)value, n, h); else OK(cuMemsetD16, d, (uint16_t)value, n); }
    if (width == 4) { if (on_stream) OK(cuMemsetD32Async, d, value, n, h); else OK(cuMemsetD32, d, value, n); }
  }
  for (size_t y = 0; y < height; y++)
    for (size_t x = 0; x < row; x++) std::memcpy(&b->bytes[(at + y * pitch + x) * width], &value, width);
}

// New bytes from the program's memory, which is written over as soon as CUDA allows it.
inline void copy_in(Thread& t) {
  Buffer* b = some_buffer(t, true);
  if (!b) return;
  auto [at, n] = some_range(t, b->size());
  Buffer* from = t.random.one_in(2) ? some_buffer(t, false) : nullptr;
  bool on_stream = t.random.one_in(2);
  StreamRef s = on_stream ? t.stream() : legacy(t);
  order(t, *b, s);
  CUdeviceptr d = b->address + at;
  t.note("in %llx + %zu%s on %p%s", (unsigned long long)d, n, from ? " pinned" : "", (void*)s->handle, on_stream ? "" : ", synchronous");
  if (from) {
    n = n < from->size() ? n : from->size();
    order(t, *from, s);
    size_t o = t.random.below(from->size() - n + 1);
    const uint8_t* h = from->host() + o;
    if (on_stream) OK(cuMemcpyHtoDAsync, d, h, n, s->handle);
    else if (t.random.one_in(2)) OK(cuMemcpyHtoD, d, h, n);
    else OK(cuMemcpy, d, (CUdeviceptr)h, n);
    std::memcpy(&b->bytes[at], &from->bytes[o], n);
    return;
  }
  std::vector<uint8_t> fresh(n);
  uint64_t word = t.random.next();
  for (size_t i = 0; i < n; i++) fresh[i] = (uint8_t)(word = word * 6364136223846793005u + 1442695040888963407u, word >> 56);
  if (on_stream && t.random.one_in(2)) OK(cuMemcpyAsync, d, (CUdeviceptr)fresh.data(), n, s->handle);
  else if (on_stream) OK(cuMemcpyHtoDAsync, d, fresh.data(), n, s->handle);
  else OK(cuMemcpyHtoD, d, fresh.data(), n);
  std::memcpy(&b->bytes[at], fresh.data(), n);
  std::memset(fresh.data(), 0xa5, n);
}

// Bytes of the device are what they must be, or lie in pinned memory that is looked at later.
inline void copy_out(Thread& t) {
  Buffer* b = some_buffer(t, true);
  if (!b) return;
  auto [at, n] = some_range(t, b->size());
  Buffer* to = t.random.one_in(2) ? some_buffer(t, false) : nullptr;
  bool on_stream = t.random.one_in(2);
  StreamRef s = on_stream ? t.stream() : legacy(t);
  order(t, *b, s);
  CUdeviceptr d = b->address + at;
  t.note("out %llx + %zu%s on %p%s", (unsigned long long)d, n, to ? " pinned" : "", (void*)s->handle, on_stream ? "" : ", synchronous");
  if (to) {
    n = n < to->size() ? n : to->size();
    order(t, *to, s);
    size_t o = t.random.below(to->size() - n + 1);
    if (on_stream) OK(cuMemcpyDtoHAsync, to->host() + o, d, n, s->handle);
    else { OK(cuMemcpyDtoH, to->host() + o, d, n); b->last = to->last = nullptr; }
    std::memcpy(&to->bytes[o], &b->bytes[at], n);
    if (!to->last) t.same(to->host() + o, &to->bytes[o], n, "a copy to pinned memory");
    return;
  }
  std::vector<uint8_t> got(n, 0x5a);
  if (!on_stream) OK(cuMemcpyDtoH, got.data(), d, n);
  else { OK(cuMemcpyDtoHAsync, got.data(), d, n, s->handle); wait_for(t, s); }
  b->last = nullptr;
  t.same(got.data(), &b->bytes[at], n, "a copy from the device");
}

inline void copy_within(Thread& t) {
  Buffer *to = some_buffer(t, true), *from = some_buffer(t, true);
  if (!to || to == from) return;
  auto [at, n] = some_range(t, to->size());
  n = n < from->size() ? n : from->size();
  size_t o = t.random.below(from->size() - n + 1);
  bool on_stream = t.random.one_in(2);
  StreamRef s = on_stream ? t.stream() : legacy(t);
  order(t, *to, s); order(t, *from, s);
  t.note("within %llx from %llx + %zu on %p%s", (unsigned long long)to->address + at, (unsigned long long)from->address + o, n,
         (void*)s->handle, on_stream ? "" : ", synchronous");
  if (on_stream) OK(cuMemcpyDtoDAsync, to->address + at, from->address + o, n, s->handle);
  else OK(cuMemcpyDtoD, to->address + at, from->address + o, n);
  std::memcpy(&to->bytes[at], &from->bytes[o], n);
}

// A rectangle to the device and back, with another pitch on each side.
inline void rectangle(Thread& t) {
  Buffer* b = some_buffer(t, true);
  if (!b || b->size() < 64) return;
  size_t height = 1 + t.random.below(16), pitch = b->size() / height, width = 1 + t.random.below(pitch), host_pitch = width + t.random.below(100);
  if (!pitch) return;
  std::vector<uint8_t> host(host_pitch * height);
  for (auto& byte : host) byte = (uint8_t)t.random.next();
  StreamRef s = legacy(t);
  order(t, *b, s);
  t.note("rectangle %llx %zu x %zu", (unsigned long long)b->address, width, height);
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST; c.srcHost = host.data(); c.srcPitch = host_pitch;
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE; c.dstDevice = b->address; c.dstPitch = pitch; c.WidthInBytes = width; c.Height = height;
  OK(cuMemcpy2DUnaligned, &c);
  for (size_t y = 0; y < height; y++) std::memcpy(&b->bytes[y * pitch], &host[y * host_pitch], width);
  std::vector<uint8_t> back(host_pitch * height, 0x77);
  CUDA_MEMCPY2D d{};
  d.srcMemoryType = CU_MEMORYTYPE_DEVICE; d.srcDevice = b->address; d.srcPitch = pitch;
  d.dstMemoryType = CU_MEMORYTYPE_HOST; d.dstHost = back.data(); d.dstPitch = host_pitch; d.WidthInBytes = width; d.Height = height;
  OK(cuMemcpy2DUnaligned, &d);
  b->last = nullptr;
  for (size_t y = 0; y < height; y++) t.same(&back[y * host_pitch], &host[y * host_pitch], width, "a row of a rectangle");
}

// A whole buffer is what it must be, and CUDA knows what it is.
inline void check(Thread& t) {
  if (t.buffers.empty()) return;
  Buffer& b = t.buffers[t.random.below(t.buffers.size())];
  t.note("check %llx + %zu", (unsigned long long)b.address, b.size());
  unsigned type = 0;
  OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, b.address + t.random.below(b.size()));
  if (type != (b.on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST)) t.fail("memory type %u", type);
  if (!b.on_device()) { settle(t, b); return t.same(b.host(), b.bytes.data(), b.size(), "pinned memory"); }
  std::vector<uint8_t> got(b.size());
  order(t, b, legacy(t));
  OK(cuMemcpyDtoH, got.data(), b.address, b.size());
  b.last = nullptr;
  t.same(got.data(), b.bytes.data(), b.size(), "a buffer");
}

// The host writes into pinned memory by itself.
inline void scribble(Thread& t) {
  Buffer* b = some_buffer(t, false);
  if (!b) return;
  settle(t, *b);
  set_all(t, *b);
}

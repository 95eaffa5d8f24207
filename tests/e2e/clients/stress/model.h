// What a thread of the stress test knows: memory and the bytes that it must hold, streams, and how two uses are put in order.
#pragma once
#include "../driver.h"
#include <sched.h>
#include <unistd.h>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Knuth's MMIX sequence: the same numbers for the same seed everywhere.
struct Random {
  uint64_t state;
  uint64_t next() { state = state * 6364136223846793005u + 1442695040888963407u; return state >> 33; }
  size_t below(size_t limit) { return ((next() << 31) ^ next()) % limit; }
  bool one_in(size_t n) { return below(n) == 0; }
  // 1 to `most`, each power of two as likely as the next.
  size_t size(size_t most) {
    size_t bits = 0;
    while ((most >> bits) > 1) bits++;
    size_t power = size_t(1) << below(bits + 1), n = power + below(power);
    return n > most ? most : n;
  }
};

// A stream, and how many host functions were put on it and have run.
struct Stream {
  CUstream handle = nullptr;
  bool blocking = true, legacy = false, alive = true;
  long posted = 0;
  std::atomic<long> ran{0};
};
using StreamRef = std::shared_ptr<Stream>;

enum class Kind { Device, Pooled, Pinned, Registered };

// Memory and what it must hold. `last` is the stream of its latest use, none when the host has waited for that.
struct Buffer {
  Kind kind = Kind::Device;
  CUdeviceptr address = 0;
  std::vector<uint8_t> bytes;
  StreamRef last;
  bool on_device() const { return kind == Kind::Device || kind == Kind::Pooled; }
  uint8_t* host() const { return reinterpret_cast<uint8_t*>(address); }
  size_t size() const { return bytes.size(); }
};

// A buffer on its way from one thread to another: `ready` was recorded behind its latest use.
struct Parcel { Buffer buffer; CUevent ready = nullptr; };

// What all threads share.
struct Common {
  uint64_t seed = 0;
  CUcontext context = nullptr;
  std::atomic<bool> stop{false};
  std::atomic_flag post_lock = ATOMIC_FLAG_INIT;
  std::vector<Parcel> post;
};

// One thread.
struct Thread {
  Common& common;
  int number;
  Random random;
  std::atomic<uint64_t> step{0};
  std::atomic<const char*> action{"start"};
  std::vector<Buffer> buffers;
  std::vector<StreamRef> streams;
  std::vector<std::string> history;

  Thread(Common& c, int n) : common(c), number(n), random{c.seed * 1000003u + uint64_t(n)} {}

  // Kept for the report of a failure: the latest few.
  void note(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    char text[256]; va_list list; va_start(list, format); std::vsnprintf(text, sizeof text, format, list); va_end(list);
    if (history.size() == 64) history.erase(history.begin());
    history.emplace_back("step " + std::to_string(step) + ": " + text);
  }
  [[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    char text[512]; va_list list; va_start(list, format); std::vsnprintf(text, sizeof text, format, list); va_end(list);
    flockfile(stdout);
    for (auto& line : history) std::printf("  %s\n", line.c_str());
    std::printf("FAIL seed %llu thread %d step %llu %s: %s\n", (unsigned long long)common.seed, number,
                (unsigned long long)step.load(), action.load(), text);
    std::fflush(stdout); _exit(1);
  }
  void expect(CUresult got, int want, const char* what, int line) {
    if (got != want) fail("line %d: %s answers %d instead of %d", line, what, (int)got, want);
  }
  // The bytes at `at`, which have been waited for, are those of a model.
  void same(const uint8_t* at, const uint8_t* model, size_t n, const char* what) {
    if (!std::memcmp(at, model, n)) return;
    size_t i = 0, wrong = 0;
    while (at[i] == model[i]) i++;
    for (size_t j = 0; j < n; j++) wrong += at[j] != model[j];
    fail("%s: %zu of %zu bytes differ, first at %zu: %02x instead of %02x", what, wrong, n, i, at[i], model[i]);
  }
  StreamRef stream() { return streams[random.below(streams.size())]; }
};

// A call that must give a code, and one that must succeed.
#define GIVES(code, f, ...) t.expect(CALL(f)(__VA_ARGS__), code, #f, __LINE__)
#define OK(f, ...) GIVES(0, f, __VA_ARGS__)

// The host functions that were put on a stream before a wait have run when it returns.
inline void waited(Thread& t, const StreamRef& s) {
  if (s->ran != s->posted) t.fail("%ld of %ld host functions have run", s->ran.load(), s->posted);
}

// Asks until something is no longer under way.
template <class Ask> void poll(Thread& t, const char* what, Ask ask) {
  CUresult code;
  while ((code = ask()) == CUDA_ERROR_NOT_READY) sched_yield();
  t.expect(code, 0, what, __LINE__);
}

inline CUevent record(Thread& t, const StreamRef& s) {
  CUevent event;
  OK(cuEventCreate, &event, t.random.one_in(2) ? CU_EVENT_DISABLE_TIMING : t.random.one_in(2) ? CU_EVENT_BLOCKING_SYNC : 0);
  OK(cuEventRecord, event, s->handle);
  return event;
}

// The host waits for all that a stream was given, in one of the ways in which that can be done.
inline void wait_for(Thread& t, const StreamRef& s) {
  size_t way = s->alive ? t.random.below(5) : 0;
  t.note("  waits for %p by way %zu", (void*)s->handle, way);
  switch (way) {
    case 0: OK(cuCtxSynchronize); break;
    case 1: OK(cuStreamSynchronize, s->handle); break;
    case 2: poll(t, "cuStreamQuery", [&] { return CALL(cuStreamQuery)(s->handle); }); break;
    case 3: { CUevent e = record(t, s); OK(cuEventSynchronize, e); OK(cuEventQuery, e); OK(cuEventDestroy, e); break; }
    case 4: { CUevent e = record(t, s); poll(t, "cuEventQuery", [&] { return CALL(cuEventQuery)(e); }); OK(cuEventDestroy, e); break; }
  }
  waited(t, s);
}

// The host may touch a buffer.
inline void settle(Thread& t, Buffer& b) {
  if (b.last) wait_for(t, b.last);
  b.last = nullptr;
}

// What comes next on stream `s` may use a buffer.
inline void order(Thread& t, Buffer& b, const StreamRef& s) {
  StreamRef old = b.last;
  b.last = s;
  if (!old || old == s) return;
  // The legacy stream and those that are blocking wait for each other.
  if (old->alive && ((old->legacy && s->blocking) || (s->legacy && old->blocking)) && t.random.one_in(2)) return;
  if (!old->alive || t.random.one_in(3)) return wait_for(t, old);
  t.note("  %p waits for %p", (void*)s->handle, (void*)old->handle);
  CUevent e = record(t, old);
  OK(cuStreamWaitEvent, s->handle, e, 0);
  OK(cuEventDestroy, e);
}

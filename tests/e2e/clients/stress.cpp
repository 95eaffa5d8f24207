// Threads that do everything at once, each beside a model of what memory must hold and which calls must fail with which code.
//
//   stress SECONDS [SEED] [THREADS]
//
// Each thread takes its steps by a sequence of numbers of its own, made from the seed. Prints PASS, or what differed with the seed and the
// thread's latest steps; a thread that takes none for a minute is a failure too.
#include "stress/work.h"
#include <thread>

struct Action { const char* name; unsigned weight; void (*run)(Thread&, CUfunction); };

template <void (*f)(Thread&)> void plain(Thread& t, CUfunction) { f(t); }

static const Action ACTIONS[] = {
    {"allocate", 12, plain<allocate>}, {"free", 10, plain<free_one>},        {"set", 20, plain<set>},
    {"copy in", 20, plain<copy_in>},   {"copy out", 20, plain<copy_out>},    {"copy within", 10, plain<copy_within>},
    {"rectangle", 4, plain<rectangle>}, {"check", 6, plain<check>},          {"scribble", 4, plain<scribble>},
    {"launch", 25, launch},            {"host function", 4, plain<host_function>}, {"new stream", 3, plain<new_stream>},
    {"end stream", 2, plain<end_stream>}, {"events", 4, plain<events>},      {"module", 2, plain<module>},
    {"context", 1, plain<context>},    {"pools", 1, plain<pools>},           {"wrong", 3, wrong},
    {"exchange", 4, plain<exchange>},
};

static const Action& choose(Random& random) {
  unsigned all = 0;
  for (auto& a : ACTIONS) all += a.weight;
  unsigned at = (unsigned)random.below(all);
  for (auto& a : ACTIONS) { if (at < a.weight) return a; at -= a.weight; }
  return ACTIONS[0];
}

static void live(Thread& t) {
  CUfunction mix;
  OK(cuCtxSetCurrent, t.common.context);
  CUmodule module = load(t, 1, &mix);
  auto fixed = [&](CUstream handle, bool legacy) {
    auto s = std::make_shared<Stream>(); s->handle = handle; s->legacy = legacy; t.streams.push_back(s);
  };
  fixed(CU_STREAM_LEGACY, true); fixed(CU_STREAM_PER_THREAD, false);
  while (!t.common.stop) {
    const Action& action = choose(t.random);
    t.action = action.name;
    t.step++;
    action.run(t, mix);
  }
  t.action = "the end";
  OK(cuCtxSynchronize);
  for (auto& s : t.streams) waited(t, s);
  while (!t.buffers.empty()) {
    Buffer b = std::move(t.buffers.back());
    t.buffers.pop_back();
    std::vector<uint8_t> got(b.size());
    if (b.on_device()) OK(cuMemcpyDtoH, got.data(), b.address, b.size()); else std::memcpy(got.data(), b.host(), b.size());
    t.same(got.data(), b.bytes.data(), b.size(), "a buffer at the end");
    b.last = nullptr;
    give_back(t, std::move(b));
  }
  OK(cuCtxSynchronize);
  for (size_t i = 2; i < t.streams.size(); i++) OK(cuStreamDestroy, t.streams[i]->handle);
  t.streams.resize(2);
  OK(cuModuleUnload, module);
}

// Ends the program when a thread takes no step for a minute.
static void watch(std::vector<std::unique_ptr<Thread>>& threads, std::atomic<bool>& over) {
  std::vector<uint64_t> last(threads.size()); std::vector<double> since(threads.size(), seconds());
  while (!over) {
    usleep(100000);
    for (size_t i = 0; i < threads.size(); i++) {
      Thread& t = *threads[i];
      if (t.step != last[i] || t.action.load() == std::string("over")) { last[i] = t.step; since[i] = seconds(); }
      if (seconds() - since[i] > 60) t.fail("no step for a minute");
    }
  }
}

int main(int argc, char** argv) {
  double length = argc > 1 ? std::atof(argv[1]) : 10;
  Common common;
  common.seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : (uint64_t)(seconds() * 1e6);
  int count = argc > 3 ? std::atoi(argv[3]) : 8;
  std::printf("SEED %llu\n", (unsigned long long)common.seed); std::fflush(stdout);
  start();
  CK(CALL(cuCtxGetCurrent)(&common.context));
  std::vector<std::unique_ptr<Thread>> threads; std::vector<std::thread> running; std::atomic<bool> over{false};
  for (int i = 0; i < count; i++) threads.push_back(std::make_unique<Thread>(common, i));
  for (auto& t : threads) running.emplace_back([&t] { live(*t); t->action = "over"; });
  std::thread watcher([&] { watch(threads, over); });
  double end = seconds() + length;
  while (seconds() < end) usleep(10000);
  common.stop = true;
  for (auto& r : running) r.join();
  over = true;
  watcher.join();
  uint64_t steps = 0;
  for (auto& t : threads) steps += t->step;
  Thread& t = *threads[0];
  for (auto& parcel : common.post) { OK(cuEventSynchronize, parcel.ready); OK(cuEventDestroy, parcel.ready); give_back(t, std::move(parcel.buffer)); }
  std::printf("STEPS %llu\nPASS stress\n", (unsigned long long)steps);
}

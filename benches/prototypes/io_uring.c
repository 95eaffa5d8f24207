// A ping-pong of a call's bytes over a loopback connection, by read and write and by io_uring, to decide whether the TCP transport should
// use io_uring. One request is a send and a receive; io_uring does both with one system call, submitted together and waited for.
//
//     gcc -O2 -o /tmp/io_uring benches/prototypes/io_uring.c && /tmp/io_uring
//
// The answering side always uses recv and send. Rounds of both take turns; printed are medians of each round, in microseconds.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST = 72, ANSWER = 40, CALLS = 20000, ROUNDS = 7 };
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec / 1e3; }
static void all(int fd, char* to, int bytes) { for (int have = 0; have < bytes;) { int n = recv(fd, to + have, bytes - have, 0); if (n <= 0) exit(0); have += n; } }

static struct io_uring_params params; static int ring; static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe* sqes; static struct io_uring_cqe* cqes;

static int set_up(void) {
  params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN;
  ring = syscall(SYS_io_uring_setup, 8, &params);
  if (ring < 0) { memset(&params, 0, sizeof params); ring = syscall(SYS_io_uring_setup, 8, &params); }
  if (ring < 0) return -1;
  char* sq = mmap(0, params.sq_off.array + params.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
  char* cq = mmap(0, params.cq_off.cqes + params.cq_entries * sizeof *cqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
  sqes = mmap(0, params.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
  sq_tail = (void*)(sq + params.sq_off.tail); sq_mask = (void*)(sq + params.sq_off.ring_mask); sq_array = (void*)(sq + params.sq_off.array);
  cq_head = (void*)(cq + params.cq_off.head); cq_tail = (void*)(cq + params.cq_off.tail); cq_mask = (void*)(cq + params.cq_off.ring_mask);
  cqes = (void*)(cq + params.cq_off.cqes);
  return 0;
}
static void put(int fd, int op, void* buffer, int bytes, int flags) {
  unsigned tail = *sq_tail, at = tail & *sq_mask; struct io_uring_sqe* e = &sqes[at]; memset(e, 0, sizeof *e);
  e->opcode = op; e->fd = fd; e->addr = (unsigned long)buffer; e->len = bytes; e->msg_flags = op == IORING_OP_RECV ? MSG_WAITALL : 0; e->flags = flags;
  sq_array[at] = at; __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
}
static void by_uring(int fd, char* bytes) {
  put(fd, IORING_OP_SEND, bytes, REQUEST, 0); put(fd, IORING_OP_RECV, bytes, ANSWER, 0);
  unsigned done = 0, submit = 2;
  while (done < 2) {
    syscall(SYS_io_uring_enter, ring, submit, 2 - done, IORING_ENTER_GETEVENTS, 0, 0); submit = 0;
    unsigned head = *cq_head, tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
    for (; head != tail; head++, done++) if (cqes[head & *cq_mask].res < 0) { fprintf(stderr, "io_uring: %s\n", strerror(-cqes[head & *cq_mask].res)); exit(1); }
    __atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
  }
}
static void by_calls(int fd, char* bytes) { if (send(fd, bytes, REQUEST, 0) < 0) exit(1); all(fd, bytes, ANSWER); }
static int order(const void* a, const void* b) { double x = *(double*)a, y = *(double*)b; return (x > y) - (x < y); }
static double median(void (*one)(int, char*), int fd) {
  static double took[CALLS]; char bytes[REQUEST] = {1};
  for (int i = 0; i < CALLS; i++) { double start = now(); one(fd, bytes); took[i] = now() - start; }
  qsort(took, CALLS, sizeof *took, order); return took[CALLS / 2];
}
int main(void) {
  int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1; struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}; socklen_t l = sizeof a;
  bind(listener, (void*)&a, l); listen(listener, 1); getsockname(listener, (void*)&a, &l);
  int child = fork();
  if (!child) {
    int fd = socket(AF_INET, SOCK_STREAM, 0); connect(fd, (void*)&a, l); setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (char bytes[REQUEST];;) { all(fd, bytes, REQUEST); send(fd, bytes, ANSWER, 0); }
  }
  int fd = accept(listener, 0, 0); setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (set_up()) { perror("io_uring_setup"); return 1; }
  for (int i = 0; i < ROUNDS; i++) { double c = median(by_calls, fd), u = median(by_uring, fd); printf("send and recv %.2f, io_uring %.2f\n", c, u); }
  shutdown(fd, SHUT_RDWR); waitpid(child, 0, 0);
}

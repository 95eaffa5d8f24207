// A graph that is captured from two streams, and one that is built node by node; both are launched again and again.
#include "check.h"

__global__ void add(int* p, int value) { p[threadIdx.x] += value; }
__global__ void twice(int* p) { p[threadIdx.x] *= 2; }

static const int N = 64;

static void expect(const int* device, int value, const char* what) {
  int host[N];
  CK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < N; i++) WANT(host[i] == value, "%s: [%d] is %d, not %d", what, i, host[i], value);
}

// a = 2 * (a + 1) in one stream, b = b + 10 in another that is forked and joined by events, then a = a + 100.
static cudaGraph_t captured(int* a, int* b) {
  cudaStream_t first, second;
  cudaEvent_t fork, join;
  cudaGraph_t graph;
  CK(cudaStreamCreate(&first)); CK(cudaStreamCreate(&second));
  CK(cudaEventCreate(&fork)); CK(cudaEventCreate(&join));
  CK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
  add<<<1, N, 0, first>>>(a, 1);
  CK(cudaEventRecord(fork, first)); CK(cudaStreamWaitEvent(second, fork, 0));
  add<<<1, N, 0, second>>>(b, 10);
  twice<<<1, N, 0, first>>>(a);
  CK(cudaEventRecord(join, second)); CK(cudaStreamWaitEvent(first, join, 0));
  add<<<1, N, 0, first>>>(a, 100);
  CK(cudaStreamEndCapture(first, &graph));
  size_t nodes = 0;
  CK(cudaGraphGetNodes(graph, nullptr, &nodes));
  WANT(nodes == 4, "%zu nodes", nodes);
  CK(cudaEventDestroy(fork)); CK(cudaEventDestroy(join));
  CK(cudaStreamDestroy(first)); CK(cudaStreamDestroy(second));
  return graph;
}

// c = value in all elements, then copied to d, then d = d * 2.
static cudaGraph_t built(int* c, int* d, cudaGraphNode_t* kernel) {
  cudaGraph_t graph;
  cudaGraphNode_t set, copy;
  CK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams fill = {};
  fill.dst = c; fill.value = 7; fill.elementSize = 4; fill.width = N; fill.height = 1;
  CK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &fill));
  CK(cudaGraphAddMemcpyNode1D(&copy, graph, &set, 1, d, c, N * 4, cudaMemcpyDeviceToDevice));
  void* arguments[] = {&d};
  cudaKernelNodeParams params = {};
  params.func = (void*)twice; params.gridDim = dim3(1); params.blockDim = dim3(N); params.kernelParams = arguments;
  CK(cudaGraphAddKernelNode(kernel, graph, &copy, 1, &params));
  return graph;
}

int main() {
  int *a, *b, *c, *d;
  for (int** p : {&a, &b, &c, &d}) { CK(cudaMalloc(p, N * 4)); CK(cudaMemset(*p, 0, N * 4)); }
  cudaStream_t stream;
  CK(cudaStreamCreate(&stream));

  cudaGraph_t graph = captured(a, b);
  expect(a, 0, "a capture runs nothing");
  cudaGraphExec_t exec;
  CK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  int wanted = 0;
  for (int i = 1; i <= 3; i++) {
    CK(cudaGraphLaunch(exec, stream)); CK(cudaStreamSynchronize(stream));
    wanted = 2 * (wanted + 1) + 100;
    expect(a, wanted, "captured, first stream");
    expect(b, 10 * i, "captured, second stream");
  }
  CK(cudaGraphExecDestroy(exec)); CK(cudaGraphDestroy(graph));

  cudaGraphNode_t kernel;
  graph = built(c, d, &kernel);
  CK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  CK(cudaGraphLaunch(exec, stream)); CK(cudaStreamSynchronize(stream));
  expect(c, 7, "set");
  expect(d, 14, "copied and doubled");
  // The executable graph alone gets another kernel.
  cudaKernelNodeParams params = {};
  params.func = (void*)twice; params.gridDim = dim3(1); params.blockDim = dim3(N);
  void* onto_c[] = {&c};
  params.kernelParams = onto_c;
  CK(cudaGraphExecKernelNodeSetParams(exec, kernel, &params));
  CK(cudaGraphLaunch(exec, stream)); CK(cudaStreamSynchronize(stream));
  expect(c, 14, "doubled in its other place");
  expect(d, 7, "only copied");

  // What may not be captured ends the capture, and the stream is as before.
  CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaError_t refused = cudaStreamSynchronize(stream);
  WANT(refused == cudaErrorStreamCaptureUnsupported, "%d", (int)refused);
  cudaGraph_t none;
  refused = cudaStreamEndCapture(stream, &none);
  WANT(refused == cudaErrorStreamCaptureInvalidated, "%d", (int)refused);
  cudaGetLastError();
  CK(cudaMemsetAsync(c, 0, N * 4, stream)); CK(cudaStreamSynchronize(stream));
  expect(c, 0, "after a capture that failed");
  CK(cudaGraphExecDestroy(exec)); CK(cudaGraphDestroy(graph));
  std::puts("PASS graphs");
}

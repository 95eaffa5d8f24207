"""Programs that compile CUDA C++ at run time with NVRTC and load the PTX through the driver API (cuda-bindings, no cudart)."""

import ctypes
import os
import unittest

import numpy as np
import nvidia.cuda_runtime
from cuda.bindings import driver, nvrtc


def ok(result):
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(code)
    return values[0] if values else None


def ok_all(result):
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(code)
    return values


def setUpModule():
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))


# What the wheels bring: cuda_fp16.h, cooperative_groups.h; CUB and libcu++.
INCLUDES = [
    path
    for name in ("cuda_runtime/include", "cuda_cccl/include", "cuda_cccl/include/cccl")
    for path in [os.path.join(os.path.dirname(nvidia.cuda_runtime.__path__[0]), name)]
    if os.path.isdir(path)
]


def compiled(source, *options, architecture="compute_75", headers={}, expressions=()):
    """The PTX; with name expressions, also the names that these have in it."""
    texts = [text.encode() for text in headers.values()]
    program = ok(nvrtc.nvrtcCreateProgram(source.encode(), b"program.cu", len(texts), texts, [n.encode() for n in headers]))
    for expression in expressions:
        ok(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
    flags = [f"--gpu-architecture={architecture}".encode(), *map(str.encode, options)]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    if int(code) != 0:
        log = b" " * ok(nvrtc.nvrtcGetProgramLogSize(program))
        ok(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, ptx))
    names = [ok(nvrtc.nvrtcGetLoweredName(program, expression.encode())).decode() for expression in expressions]
    return (ptx, names) if expressions else ptx


def run(ptx, name, grid, block, array, *scalars, shared=0):
    """Launches `name(array, scalars...)` on a copy of the array and returns what it left there."""
    module = ok(driver.cuModuleLoadData(ptx))
    entry = ok(driver.cuModuleGetFunction(module, name.encode()))
    memory = ok(driver.cuMemAlloc(array.nbytes))
    ok(driver.cuMemcpyHtoD(memory, array.ctypes.data, array.nbytes))
    values = (int(memory), *(value.item() for value in scalars))
    types = (ctypes.c_void_p, *(np.ctypeslib.as_ctypes_type(value.dtype) for value in scalars))
    ok(driver.cuLaunchKernel(entry, grid, 1, 1, block, 1, 1, shared, 0, (values, types), 0))
    result = np.empty_like(array)
    ok(driver.cuMemcpyDtoH(result.ctypes.data, memory, array.nbytes))
    ok(driver.cuMemFree(memory))
    ok(driver.cuModuleUnload(module))
    return result


class Nvrtc(unittest.TestCase):
    def test_saxpy(self):
        ptx = compiled('extern "C" __global__ void f(float *x, float a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = a * x[i] + 1; }')
        x = np.arange(10_000, dtype=np.float32)
        np.testing.assert_array_equal(run(ptx, "f", 40, 256, x, np.float32(2), np.int32(9_999))[:-1], (2 * x + 1)[:-1])

    def test_every_architecture(self):
        for architecture in ("compute_75", "compute_80", "compute_86", "compute_89"):
            ptx = compiled('extern "C" __global__ void f(int *x) { atomicAdd(x, (int)threadIdx.x); }', architecture=architecture)
            self.assertEqual(run(ptx, "f", 3, 64, np.zeros(1, np.int32))[0], 3 * 64 * 63 // 2)

    def test_template_and_recursion(self):
        ptx = compiled("""template <int N> __device__ int up(int x) { return N == 0 ? x : up<(N > 0 ? N - 1 : 0)>(x + N); }
            __device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
            extern "C" __global__ void f(int *x) { x[threadIdx.x] = fib(threadIdx.x) + up<4>(0); }""")
        fib = [0, 1]
        while len(fib) < 16:
            fib.append(fib[-1] + fib[-2])
        np.testing.assert_array_equal(run(ptx, "f", 1, 16, np.zeros(16, np.int32)), np.array(fib) + 10)

    def test_unoptimised(self):
        ptx = compiled("""extern "C" __global__ void f(unsigned *x) {
            __shared__ unsigned s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
            for (int d = 32; d; d /= 2) { if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d]; __syncthreads(); }
            x[threadIdx.x] = s[0]; }""", "-G")
        x = np.arange(64, dtype=np.uint32)
        np.testing.assert_array_equal(run(ptx, "f", 1, 64, x), np.full(64, x.sum()))

    def test_warp_scan(self):
        ptx = compiled("""extern "C" __global__ void f(int *x) {
            int v = x[threadIdx.x], lane = threadIdx.x % 32;
            for (int d = 1; d < 32; d *= 2) { int o = __shfl_up_sync(~0u, v, d); if (lane >= d) v += o; }
            x[threadIdx.x] = v; }""")
        x = np.arange(96, dtype=np.int32) * 3 - 50
        np.testing.assert_array_equal(run(ptx, "f", 1, 96, x), np.cumsum(x.reshape(3, 32), axis=1).ravel())

    def test_name_expressions(self):
        ptx, names = compiled(
            """namespace n { template <typename T, int K> __global__ void scale(T *x) { x[threadIdx.x] *= K; } }""",
            "--std=c++17", expressions=("n::scale<float, 3>", "n::scale<long long, -2>"))
        self.assertEqual(len(set(names)), 2)
        np.testing.assert_array_equal(run(ptx, names[0], 1, 32, np.arange(32, dtype=np.float32)), np.arange(32) * 3)
        np.testing.assert_array_equal(run(ptx, names[1], 1, 32, np.arange(32, dtype=np.int64)), np.arange(32) * -2)

    def test_headers_of_the_program(self):
        ptx = compiled(
            '#include "twice.h"\nextern "C" __global__ void f(int *x) { x[threadIdx.x] = twice(x[threadIdx.x]) + OFFSET; }',
            "-DOFFSET=5", headers={"twice.h": "__device__ inline int twice(int x) { return 2 * x; }"})
        np.testing.assert_array_equal(run(ptx, "f", 1, 8, np.arange(8, dtype=np.int32)), np.arange(8) * 2 + 5)

    def test_half_header(self):
        ptx = compiled("""#include <cuda_fp16.h>
            extern "C" __global__ void f(__half *x) { x[threadIdx.x] = __hfma(x[threadIdx.x], __float2half(0.5f), __float2half(1.0f)); }""",
            *(f"-I{path}" for path in INCLUDES), architecture="compute_80")
        x = np.arange(64, dtype=np.float16)
        np.testing.assert_array_equal(run(ptx, "f", 1, 64, x), x * np.float16(0.5) + np.float16(1))

    def test_cooperative_groups_header(self):
        ptx = compiled("""#include <cooperative_groups.h>
            namespace cg = cooperative_groups;
            extern "C" __global__ void f(int *x) {
                auto tile = cg::tiled_partition<8>(cg::this_thread_block());
                int v = x[threadIdx.x];
                for (int d = tile.size() / 2; d; d /= 2) v += tile.shfl_down(v, d);
                x[threadIdx.x] = tile.shfl(v, 0); }""",
            "--std=c++17", *(f"-I{path}" for path in INCLUDES))
        x = np.arange(64, dtype=np.int32)
        np.testing.assert_array_equal(run(ptx, "f", 1, 64, x), np.repeat(x.reshape(8, 8).sum(axis=1), 8))

    def test_two_programs_are_linked(self):
        first = compiled('extern __device__ int other(int); extern "C" __global__ void f(int *x) { x[threadIdx.x] = other(x[threadIdx.x]); }', "-rdc=true")
        second = compiled("__device__ int bias = 100; __device__ int other(int x) { return x * x + bias; }", "-rdc=true")
        link = ok(driver.cuLinkCreate(0, [], []))
        for name, ptx in ((b"first", first), (b"second", second)):
            ok(driver.cuLinkAddData(link, driver.CUjitInputType.CU_JIT_INPUT_PTX, ptx, len(ptx), name, 0, [], []))
        image, _ = ok_all(driver.cuLinkComplete(link))
        result = run(image, "f", 1, 16, np.arange(16, dtype=np.int32))
        ok(driver.cuLinkDestroy(link))
        np.testing.assert_array_equal(result, np.arange(16) ** 2 + 100)

    def test_constants_are_written(self):
        ptx = compiled('__constant__ float table[4]; extern "C" __global__ void f(float *x) { x[threadIdx.x] *= table[threadIdx.x % 4]; }')
        module = ok(driver.cuModuleLoadData(ptx))
        address, size = ok_all(driver.cuModuleGetGlobal(module, b"table"))
        self.assertEqual(size, 16)
        table, x = np.array([2, 3, 5, 7], np.float32), np.arange(32, dtype=np.float32)
        ok(driver.cuMemcpyHtoD(address, table.ctypes.data, 16))
        memory = ok(driver.cuMemAlloc(x.nbytes))
        ok(driver.cuMemcpyHtoD(memory, x.ctypes.data, x.nbytes))
        entry = ok(driver.cuModuleGetFunction(module, b"f"))
        ok(driver.cuLaunchKernel(entry, 1, 1, 1, 32, 1, 1, 0, 0, ((int(memory),), (ctypes.c_void_p,)), 0))
        result = np.empty_like(x)
        ok(driver.cuMemcpyDtoH(result.ctypes.data, memory, x.nbytes))
        ok(driver.cuModuleUnload(module))
        np.testing.assert_array_equal(result, x * np.tile(table, 8))

    def test_error_is_said(self):
        with self.assertRaisesRegex(RuntimeError, "undefined"):
            compiled('extern "C" __global__ void f(int *x) { *x = nothing; }')
        code, *_ = driver.cuModuleLoadData(b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f() { nonsense; }\0")
        self.assertEqual(code, driver.CUresult.CUDA_ERROR_INVALID_PTX)


if __name__ == "__main__":
    unittest.main()

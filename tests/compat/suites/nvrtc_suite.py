"""Programs that compile CUDA C++ at run time with NVRTC and load the PTX through the driver API (cuda-bindings, no cudart)."""

import ctypes
import unittest

import numpy as np
from cuda.bindings import driver, nvrtc


def ok(result):
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(code)
    return values[0] if values else None


def setUpModule():
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))


def compiled(source, *options, architecture="compute_75"):
    program = ok(nvrtc.nvrtcCreateProgram(source.encode(), b"program.cu", 0, [], []))
    flags = [f"--gpu-architecture={architecture}".encode(), *map(str.encode, options)]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    if int(code) != 0:
        log = b" " * ok(nvrtc.nvrtcGetProgramLogSize(program))
        ok(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx


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

    def test_error_is_said(self):
        with self.assertRaisesRegex(RuntimeError, "undefined"):
            compiled('extern "C" __global__ void f(int *x) { *x = nothing; }')
        code, *_ = driver.cuModuleLoadData(b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f() { nonsense; }\0")
        self.assertEqual(code, driver.CUresult.CUDA_ERROR_INVALID_PTX)


if __name__ == "__main__":
    unittest.main()

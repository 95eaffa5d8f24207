"""CuPy: elementwise, reductions, scans, sorting by its own kernels, RawKernel and RawModule, against NumPy."""

import unittest

import cupy as cp
import numpy as np

N = 100_003
FLOATS = np.linspace(-3, 7, N, dtype=np.float32)
INTS = (np.arange(N, dtype=np.int64) * 7919) % 1009


def setUpModule():
    # Its own kernels: the prebuilt ones (CUB, Thrust) hold machine code for cards and PTX for 12.0 only.
    cp._core.set_reduction_accelerators([])
    cp._core.set_routine_accelerators([])


class Elementwise(unittest.TestCase):
    def check(self, name, *arrays, rtol=1e-5, atol=1e-6):
        got = getattr(cp, name)(*map(cp.asarray, arrays))
        np.testing.assert_allclose(cp.asnumpy(got), getattr(np, name)(*arrays), rtol=rtol, atol=atol)

    def test_arithmetic(self):
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "arctan2", "hypot"):
            self.check(name, FLOATS, FLOATS[::-1].copy() + 8)

    def test_unary(self):
        for name in ("sin", "cos", "tan", "exp", "exp2", "expm1", "tanh", "floor", "ceil", "rint", "trunc", "sign", "square", "cbrt", "arcsinh"):
            self.check(name, FLOATS)

    def test_positive(self):
        for name in ("sqrt", "log", "log2", "log10", "log1p", "reciprocal"):
            self.check(name, np.abs(FLOATS) + np.float32(0.5))

    def test_double(self):
        for name in ("sin", "exp", "tanh", "arctan"):
            self.check(name, FLOATS.astype(np.float64), rtol=1e-13, atol=1e-15)

    def test_integers(self):
        for name in ("add", "multiply", "floor_divide", "remainder", "bitwise_and", "bitwise_xor", "gcd", "left_shift"):
            self.check(name, INTS, INTS[::-1].copy() % 13 + 1)

    def test_half(self):
        a = FLOATS.astype(np.float16)
        np.testing.assert_array_equal(cp.asnumpy(cp.asarray(a) * cp.asarray(a) + 1), a * a + 1)

    def test_complex(self):
        a = (FLOATS + 1j * FLOATS[::-1]).astype(np.complex64)
        np.testing.assert_allclose(cp.asnumpy(cp.abs(cp.asarray(a) * 2)), np.abs(a * 2), rtol=1e-5)

    def test_where_and_index(self):
        a = cp.asarray(INTS)
        np.testing.assert_array_equal(cp.asnumpy(cp.where(a > 500, a, -a)), np.where(INTS > 500, INTS, -INTS))
        np.testing.assert_array_equal(cp.asnumpy(a[a % 3 == 0]), INTS[INTS % 3 == 0])
        np.testing.assert_array_equal(cp.asnumpy(cp.take(a, cp.asarray([5, 99, 7]))), INTS[[5, 99, 7]])

    def test_layout(self):
        a = np.arange(7 * 11 * 13, dtype=np.int32).reshape(7, 11, 13)
        np.testing.assert_array_equal(cp.asnumpy(cp.asarray(a).transpose(2, 0, 1)[::-2].copy()), a.transpose(2, 0, 1)[::-2])
        np.testing.assert_array_equal(cp.asnumpy(cp.concatenate([cp.asarray(a)] * 2, axis=1)), np.concatenate([a] * 2, axis=1))


class Reductions(unittest.TestCase):
    def check(self, name, array, rtol=0, **more):
        got = cp.asnumpy(getattr(cp, name)(cp.asarray(array), **more))
        np.testing.assert_allclose(got, getattr(np, name)(array, **more), rtol=rtol, atol=0)

    def test_whole(self):
        for name in ("sum", "max", "min", "argmax", "argmin", "any", "all", "count_nonzero"):
            self.check(name, INTS)

    def test_floats(self):
        for name in ("sum", "mean", "var", "std"):
            self.check(name, FLOATS.astype(np.float64), rtol=1e-12)

    def test_axes(self):
        a = INTS[: 9 * 101 * 11].reshape(9, 101, 11)
        for axis in (0, 1, 2, (0, 2)):
            self.check("sum", a, axis=axis)
            self.check("max", a, axis=axis)

    def test_scan(self):
        self.check("cumsum", INTS)
        self.check("cumprod", INTS[:60] % 3 + 1)
        self.check("cumsum", INTS[: 100 * 101].reshape(100, 101), axis=1)

    def test_histogram(self):
        got = cp.histogram(cp.asarray(INTS), bins=17)[0]
        np.testing.assert_array_equal(cp.asnumpy(got), np.histogram(INTS, bins=17)[0])

    def test_reduction_kernel(self):
        squares = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "squares")
        self.assertEqual(int(squares(cp.asarray(INTS))), int((INTS * INTS).sum()))


class Kernels(unittest.TestCase):
    def test_raw(self):
        kernel = cp.RawKernel(
            r"""extern "C" __global__ void f(const float *x, float *y, int n, float a) {
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = a * x[i] + sqrtf(fabsf(x[i]));
            }""", "f")
        x, y = cp.asarray(FLOATS), cp.zeros(N, dtype=np.float32)
        kernel(((N + 255) // 256,), (256,), (x, y, np.int32(N), np.float32(3)))
        np.testing.assert_allclose(cp.asnumpy(y), 3 * FLOATS + np.sqrt(np.abs(FLOATS)), rtol=1e-5, atol=1e-6)

    def test_raw_shared(self):
        kernel = cp.RawKernel(
            r"""extern "C" __global__ void turn(const int *x, int *y) {
                extern __shared__ int s[];
                s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
                __syncthreads();
                y[blockIdx.x * blockDim.x + threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
            }""", "turn")
        x = np.arange(64 * 192, dtype=np.int32)
        y = cp.zeros_like(cp.asarray(x))
        kernel((64,), (192,), (cp.asarray(x), y), shared_mem=192 * 4)
        np.testing.assert_array_equal(cp.asnumpy(y), x.reshape(64, 192)[:, ::-1].ravel())

    def test_module_with_constant(self):
        module = cp.RawModule(
            code=r"""__constant__ int table[4]; template <typename T> __global__ void g(T *y) { y[threadIdx.x] = (T)table[threadIdx.x % 4]; }""",
            options=("--std=c++14",), name_expressions=("g<double>",))
        pointer = module.get_global("table")
        cp.ndarray((4,), np.int32, pointer)[...] = cp.asarray([2, 3, 5, 7], dtype=np.int32)
        y = cp.zeros(32)
        module.get_function("g<double>")((1,), (32,), (y,))
        np.testing.assert_array_equal(cp.asnumpy(y), np.tile([2.0, 3, 5, 7], 8))

    def test_elementwise_kernel(self):
        kernel = cp.ElementwiseKernel("T x, raw T t", "T y", "y = x + t[i % 3]", "plus")
        got = kernel(cp.asarray(INTS), cp.asarray(np.array([1, 10, 100])))
        np.testing.assert_array_equal(cp.asnumpy(got), INTS + np.resize([1, 10, 100], N))

    def test_fuse(self):
        @cp.fuse()
        def f(x, y):
            return cp.sqrt(x * x + y * y)

        np.testing.assert_allclose(cp.asnumpy(f(cp.asarray(FLOATS), cp.asarray(FLOATS))), np.sqrt(2 * FLOATS**2), rtol=1e-5, atol=1e-6)

    def test_streams_and_events(self):
        first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
        with first:
            a = cp.arange(N) * 2
        event = first.record()
        second.wait_event(event)
        with second:
            b = a + 1
        second.synchronize()
        np.testing.assert_array_equal(cp.asnumpy(b), np.arange(N) * 2 + 1)

    def test_pinned_and_pools(self):
        memory = cp.cuda.alloc_pinned_memory(N * 8)
        host = np.frombuffer(memory, np.int64, N)
        host[:] = INTS
        a = cp.empty(N, np.int64)
        a.set(host)
        self.assertEqual(int(a.sum()), int(INTS.sum()))
        with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
            self.assertEqual(int((cp.asarray(INTS) + 1).sum()), int(INTS.sum()) + N)


if __name__ == "__main__":
    unittest.main()

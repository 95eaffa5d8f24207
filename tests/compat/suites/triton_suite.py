"""Triton: its front end and compiler as they are, up to the PTX; a pass-through script stands in for ptxas.

Triton's own launcher wants PyTorch built for CUDA, which is too large to fetch here; so the compiled kernels are loaded and
launched through the driver API.
"""

import unittest

import numpy as np
import triton
import triton.language as tl
from cuda.bindings import driver
from triton.backends.compiler import GPUTarget


def ok(result):
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code)
    return values[0] if values else None


def setUpModule():
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))


class Buffer:
    def __init__(self, array):
        self.array = array
        self.pointer = ok(driver.cuMemAlloc(max(array.nbytes, 4)))
        ok(driver.cuMemcpyHtoD(self.pointer, array.ctypes.data, array.nbytes))

    def read(self):
        ok(driver.cuMemcpyDtoH(self.array.ctypes.data, self.pointer, self.array.nbytes))
        return self.array


def run(function, grid, constants, *arguments, warps=4):
    """Compiles for these arguments and launches. `constants`: the constexpr parameters by name."""
    import ctypes

    kinds = {np.int32: ("i32", ctypes.c_int32), np.float32: ("fp32", ctypes.c_float)}
    pointers = {"float32": "*fp32", "float16": "*fp16", "int32": "*i32"}
    names = [name for name in function.arg_names if name not in constants]
    signature, values, types = {}, [], []
    for name, argument in zip(names, arguments, strict=True):
        if isinstance(argument, Buffer):
            signature[name] = pointers[argument.array.dtype.name]
            values.append(int(argument.pointer))
            types.append(ctypes.c_void_p)
        else:
            signature[name], kind = kinds[type(argument)]
            values.append(argument.item())
            types.append(kind)
    signature |= {name: "constexpr" for name in constants}
    major, minor = (ok(driver.cuDeviceGetAttribute(attribute, 0)) for attribute in (
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
    source = triton.compiler.ASTSource(fn=function, signature=signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", major * 10 + minor, 32), options={"num_warps": warps})
    module = ok(driver.cuModuleLoadData(made.asm["cubin"] + b"\0"))
    entry = ok(driver.cuModuleGetFunction(module, made.metadata.name.encode()))
    shared = made.metadata.shared
    if shared > 48 * 1024:
        ok(driver.cuFuncSetAttribute(entry, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared))
    # Two more pointers: global and profile scratch, which these kernels do not use.
    values += [0, 0]
    types += [ctypes.c_void_p, ctypes.c_void_p]
    ok(driver.cuLaunchKernel(entry, *grid, *([1] * (3 - len(grid))), 32 * made.metadata.num_warps, 1, 1, shared, 0, (tuple(values), tuple(types)), 0))
    ok(driver.cuCtxSynchronize())
    ok(driver.cuModuleUnload(module))


@triton.jit
def add_kernel(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax_kernel(x, o, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(o + row * columns + i, e / tl.sum(e, axis=0), mask=i < columns)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rm[:, None] * K + (k + rk)[None, :], mask=(k + rk)[None, :] < K, other=0.0)
        right = tl.load(b + (k + rk)[:, None] * N + rn[None, :], mask=(k + rk)[:, None] < K, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rm[:, None] * N + rn[None, :], total)


@triton.jit
def norm_kernel(x, w, o, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
    mean = tl.sum(v, axis=0) / columns
    d = tl.where(i < columns, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, axis=0) / columns + eps)
    tl.store(o + row * columns + i, d * scale * tl.load(w + i, mask=i < columns), mask=i < columns)


@triton.jit
def histogram_kernel(x, bins, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def scan_kernel(x, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, tl.cumsum(tl.load(x + i), axis=0))


@triton.jit
def sort_kernel(x, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, tl.sort(tl.load(x + i)))


@triton.jit
def transpose_kernel(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(x + rm[:, None] * N + rn[None, :])
    tl.store(o + rn[:, None] * M + rm[None, :], tl.trans(tile))


@triton.jit
def random_kernel(o, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.rand(seed, i))


@triton.jit
def compare_kernel(x, best, lock, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_max(best, tl.max(v, axis=0))
    # A lock between programs: one by one they add without an atomic.
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + tl.sum(v, axis=0))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((128, 1), (256, 2), (1024, 8))], key=["n"])
@triton.jit
def tuned_kernel(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, v * v, mask=i < n)


@triton.jit
def attention_kernel(q, k, v, o, N, SCALE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    left = tl.load(q + rows[:, None] * D + d[None, :])
    highest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(k + columns[:, None] * D + d[None, :])
        score = tl.dot(left, tl.trans(keys)) * SCALE
        new = tl.maximum(highest, tl.max(score, axis=1))
        weight = tl.exp(score - new[:, None])
        shrink = tl.exp(highest - new)
        total = total * shrink + tl.sum(weight, axis=1)
        values = tl.load(v + columns[:, None] * D + d[None, :])
        out = out * shrink[:, None] + tl.dot(weight.to(tl.float16), values)
        highest = new
    tl.store(o + rows[:, None] * D + d[None, :], out / total[:, None])


RANDOM = np.random.default_rng(5)


class Triton(unittest.TestCase):
    def test_add(self):
        n = 98_432 + 5
        x, y = RANDOM.random(n, np.float32), RANDOM.random(n, np.float32)
        o = Buffer(np.zeros(n, np.float32))
        run(add_kernel, ((n + 1023) // 1024,), {"BLOCK": 1024}, Buffer(x), Buffer(y), o, np.int32(n))
        np.testing.assert_array_equal(o.read(), x + y)

    def test_softmax(self):
        x = RANDOM.random((50, 781), np.float32) * 8
        o = Buffer(np.zeros_like(x))
        run(softmax_kernel, (50,), {"BLOCK": 1024}, Buffer(x), o, np.int32(781))
        e = np.exp(x - x.max(axis=1, keepdims=True))
        np.testing.assert_allclose(o.read(), e / e.sum(axis=1, keepdims=True), rtol=1e-5)

    def matmul(self, kind, k, rtol):
        a, b = RANDOM.random((128, k), np.float32).astype(kind), RANDOM.random((k, 64), np.float32).astype(kind)
        c = Buffer(np.zeros((128, 64), np.float32))
        run(matmul_kernel, (2, 2), {"BM": 64, "BN": 32, "BK": 32}, Buffer(a), Buffer(b), c, np.int32(128), np.int32(64), np.int32(k))
        np.testing.assert_allclose(c.read(), a.astype(np.float64) @ b.astype(np.float64), rtol=rtol)

    def test_matmul_half(self):
        self.matmul(np.float16, 96, 1e-5)

    def test_matmul_tf32(self):
        # tf32 keeps 10 bits of mantissa.
        self.matmul(np.float32, 96, 2e-3)

    def test_matmul_ragged(self):
        self.matmul(np.float16, 72, 1e-5)

    def test_layer_norm(self):
        x, w = RANDOM.random((33, 500), np.float32), RANDOM.random(500, np.float32)
        o = Buffer(np.zeros_like(x))
        run(norm_kernel, (33,), {"BLOCK": 512}, Buffer(x), Buffer(w), o, np.int32(500), np.float32(1e-5))
        d = x - x.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(o.read(), d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * w, rtol=1e-4, atol=1e-5)

    def test_histogram(self):
        x = RANDOM.integers(0, 40, 50_001, dtype=np.int32)
        bins = Buffer(np.zeros(40, np.int32))
        run(histogram_kernel, (49,), {"BLOCK": 1024}, Buffer(x), bins, np.int32(x.size))
        np.testing.assert_array_equal(bins.read(), np.bincount(x, minlength=40))

    def test_atomics_and_lock(self):
        x = RANDOM.integers(0, 1000, 5_000, dtype=np.int32)
        best, lock, total = (Buffer(np.zeros(1, np.int32)) for _ in range(3))
        run(compare_kernel, (20,), {"BLOCK": 256}, Buffer(x), best, lock, total, np.int32(x.size))
        self.assertEqual((best.read()[0], lock.read()[0], total.read()[0]), (x.max(), 0, x.sum()))

    def test_every_configuration_of_autotune(self):
        # Its benchmark runs in Triton's launcher, which wants PyTorch; what it would choose among is compiled and run.
        x = RANDOM.random(10_007, np.float32)
        self.assertEqual(len(tuned_kernel.configs), 3)
        for config in tuned_kernel.configs:
            o, block = Buffer(np.zeros_like(x)), config.kwargs["BLOCK"]
            run(tuned_kernel.fn, (-(-x.size // block),), config.kwargs, Buffer(x), o, np.int32(x.size), warps=config.num_warps)
            np.testing.assert_array_equal(o.read(), x * x)

    def test_attention(self):
        n, d = 128, 32
        q, k, v = (RANDOM.random((n, d), np.float32).astype(np.float16) for _ in range(3))
        o = Buffer(np.zeros((n, d), np.float32))
        run(attention_kernel, (2,), {"SCALE": d**-0.5, "BM": 64, "BN": 32, "D": d}, Buffer(q), Buffer(k), Buffer(v), o, np.int32(n))
        score = q.astype(np.float64) @ k.astype(np.float64).T * d**-0.5
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        # The weights are rounded to half: eleven bits.
        np.testing.assert_allclose(o.read(), weight @ v.astype(np.float64) / weight.sum(axis=1, keepdims=True), rtol=2e-3)

    def test_scan(self):
        x = RANDOM.integers(-50, 50, 2048, dtype=np.int32)
        o = Buffer(np.zeros_like(x))
        run(scan_kernel, (1,), {"BLOCK": 2048}, Buffer(x), o)
        np.testing.assert_array_equal(o.read(), np.cumsum(x))

    def test_sort(self):
        x = RANDOM.permutation(512).astype(np.int32)
        o = Buffer(np.zeros_like(x))
        run(sort_kernel, (1,), {"BLOCK": 512}, Buffer(x), o)
        np.testing.assert_array_equal(o.read(), np.arange(512))

    def test_transpose(self):
        x = RANDOM.random((128, 96), np.float32)
        o = Buffer(np.zeros((96, 128), np.float32))
        run(transpose_kernel, (4, 3), {"BM": 32, "BN": 32}, Buffer(x), o, np.int32(128), np.int32(96))
        np.testing.assert_array_equal(o.read(), x.T)

    def test_random(self):
        o = Buffer(np.zeros(1 << 16, np.float32))
        run(random_kernel, (64,), {"BLOCK": 1024}, o, np.int32(3))
        values = o.read()
        self.assertTrue(((values >= 0) & (values < 1)).all())
        self.assertLess(abs(values.mean() - 0.5), 5 / np.sqrt(12 * values.size))
        self.assertGreater(np.unique(values).size, values.size * 0.98)


if __name__ == "__main__":
    unittest.main()

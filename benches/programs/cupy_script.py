"""A CuPy script as many are: arrays, element-wise arithmetic, reductions, a kernel of its own, results on the host."""

import sys

import cupy
import numpy

scale = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * 2 + y", "scale")
x = cupy.arange(1 << 18, dtype=cupy.float32) / 1000
total = 0.0
for step in range(100):
    y = cupy.sqrt(x) + step
    z = scale(x, y)
    total += float(z.sum())
host = numpy.arange(1 << 18, dtype=numpy.float32) / numpy.float32(1000)
want = sum(float((host * 2 + numpy.sqrt(host) + step).sum(dtype=numpy.float64)) for step in range(100))
if abs(total - want) > 1e-4 * want:
    sys.exit(f"FAIL cupy_script: {total} instead of {want}")
print("PASS cupy_script")

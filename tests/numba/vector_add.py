"""A numba-cuda vector add: no cudart anywhere, the driver API through cuda-bindings. Prints PASS, or says what differed."""

import sys

import numpy as np
from numba import cuda


@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


n = 100_003
a = np.arange(n, dtype=np.float32) * np.float32(0.5)
b = np.float32(3.0) - np.arange(n, dtype=np.float32)
c = cuda.device_array(n, dtype=np.float32)
add[(n + 255) // 256, 256](cuda.to_device(a), cuda.to_device(b), c)
cuda.synchronize()
got = c.copy_to_host()
wrong = np.flatnonzero(got != a + b)
if wrong.size:
    i = wrong[0]
    sys.exit(f"FAIL numba vector_add: {wrong.size} differ, first at {i}: got {got[i]} want {a[i] + b[i]}")
print("PASS numba vector_add")

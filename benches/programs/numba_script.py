"""A numba script as many are: a kernel that is compiled at its first launch, launched in a loop, its results looked at."""

import sys

import numpy as np
from numba import cuda


@cuda.jit
def step(x, y, k):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] * 0.5 + k


n = 1 << 20
host = np.arange(n, dtype=np.float32)
x, y = cuda.to_device(host), cuda.device_array(n, dtype=np.float32)
want = host.copy()
for k in range(100):
    step[(n + 255) // 256, 256](x, y, np.float32(k))
    x, y = y, x
    want = want * np.float32(0.5) + np.float32(k)
    if k % 10 == 9 and x[17] != want[17]:
        sys.exit(f"FAIL numba_script: step {k}: {x[17]} instead of {want[17]}")
if not np.allclose(x.copy_to_host(), want):
    sys.exit("FAIL numba_script")
print("PASS numba_script")

"""CuPy's prebuilt modules (CUB scans and reductions, Thrust sorting, the random generators): PTX for 12.0 only."""

import unittest

import cupy as cp
import numpy as np

N = 100_003
INTS = (np.arange(N, dtype=np.int64) * 7919) % 1_000_003
FLOATS = np.sin(np.arange(N)).astype(np.float32)


class Prebuilt(unittest.TestCase):
    def test_sort(self):
        for array in (INTS, FLOATS, INTS.astype(np.int32), FLOATS.astype(np.float64)):
            np.testing.assert_array_equal(cp.asnumpy(cp.sort(cp.asarray(array))), np.sort(array))

    def test_argsort(self):
        np.testing.assert_array_equal(cp.asnumpy(cp.argsort(cp.asarray(FLOATS))), np.argsort(FLOATS, kind="stable"))

    def test_sort_rows(self):
        a = INTS[: 100 * 1000].reshape(100, 1000)
        np.testing.assert_array_equal(cp.asnumpy(cp.sort(cp.asarray(a), axis=1)), np.sort(a, axis=1))

    def test_lexsort(self):
        keys = np.stack([INTS % 7, INTS % 11])
        np.testing.assert_array_equal(cp.asnumpy(cp.lexsort(cp.asarray(keys))), np.lexsort(keys))

    def test_unique(self):
        np.testing.assert_array_equal(cp.asnumpy(cp.unique(cp.asarray(INTS % 5003))), np.unique(INTS % 5003))

    def test_device_reduce(self):
        a = cp.asarray(INTS)
        self.assertEqual((int(a.sum()), int(a.max()), int(a.argmin())), (int(INTS.sum()), int(INTS.max()), int(INTS.argmin())))

    def test_device_scan(self):
        np.testing.assert_array_equal(cp.asnumpy(cp.cumsum(cp.asarray(INTS))), np.cumsum(INTS))

    def test_random(self):
        for generator in (cp.random.XORWOW, cp.random.MRG32k3a, cp.random.Philox4x3210):
            values = cp.asnumpy(cp.random.Generator(generator(1234)).random(N))
            self.assertTrue(((values >= 0) & (values < 1)).all())
            # The mean of N uniform values: within five standard deviations.
            self.assertLess(abs(values.mean() - 0.5), 5 / np.sqrt(12 * N))
            again = cp.asnumpy(cp.random.Generator(generator(1234)).random(N))
            np.testing.assert_array_equal(values, again)

    def test_random_normal(self):
        values = cp.asnumpy(cp.random.default_rng(7).standard_normal(N))
        self.assertLess(abs(values.mean()), 5 / np.sqrt(N))
        self.assertLess(abs(values.std() - 1), 5 / np.sqrt(2 * N))


if __name__ == "__main__":
    unittest.main()

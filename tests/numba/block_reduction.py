"""Runs the block reduction that numba-cuda's own installed test package has (a kernel with shared memory and barriers).

Prints PASS only when the test really ran: a skipped test, or none found, is a failure here.
"""

import sys
import unittest

NAME = "numba.cuda.tests.doc_examples.test_reduction"

suite = unittest.defaultTestLoader.loadTestsFromName(NAME)
result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(suite)
if not result.wasSuccessful() or result.testsRun == 0 or result.skipped:
    sys.exit(f"FAIL {NAME}: ran {result.testsRun}, skipped {len(result.skipped)}")
print("PASS numba block_reduction")

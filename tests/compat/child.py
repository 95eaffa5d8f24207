"""Runs the tests of the named unittest modules and writes one JSON line a test to a file: started by run.py only.

usage: child.py OUT SKIPFILE MODULE...

COMPAT_PRELUDE names a module that is imported first; COMPAT_ONLY is a pattern that a test's name must hold.

A line {"start": id} is written before each test and {"id", "result", "why"} after it, so that the parent knows which test was
running when the process died or hung.
"""

import faulthandler
import importlib
import json
import os
import pathlib
import re
import sys
import unittest

out = None


def say(**line):
    out.write(json.dumps(line) + "\n")


# Paths of this machine say nothing to a reader.
ROOT = str(pathlib.Path(__file__).resolve().parent.parent.parent) + "/"


def in_short(error):
    """An exception's kind, and the first and the last line of what it says."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    text = " … ".join(dict.fromkeys(line[:200] for line in lines[:1] + lines[-1:]))
    return f"{type(error).__name__}: {text}".replace(ROOT, "")


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.outcome = ("ok", "")
        say(start=test.id())

    def stopTest(self, test):
        super().stopTest(test)
        say(id=test.id(), result=self.outcome[0], why=self.outcome[1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = ("skipped", reason[:300])

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.outcome = ("skipped", "expected to fail by its authors")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = ("ok", "")

    def _bad(self, kind, test, err):
        why = in_short(err[1])
        # A class's or module's set-up failed: that is no single test, and has no start line.
        if not isinstance(test, unittest.TestCase):
            say(id=str(test), result=kind, why=why)
        self.outcome = (kind, why)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._bad("failed", test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._bad("failed", test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._bad("failed", test, err)


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def main():
    global out
    out = open(sys.argv[1], "a", buffering=1)
    with open(sys.argv[2]) as f:
        skip = set(f.read().split("\n"))
    faulthandler.enable()
    if os.environ.get("COMPAT_PRELUDE"):
        importlib.import_module(os.environ["COMPAT_PRELUDE"])
    only = re.compile(os.environ.get("COMPAT_ONLY", ""))
    found = unittest.TestSuite()
    for name in sys.argv[3:]:
        found.addTests(unittest.defaultTestLoader.loadTestsFromName(name))
    tests = [test for test in flatten(found) if test.id() not in skip and only.search(test.id())]
    say(count=len(tests))
    unittest.TestSuite(tests).run(Result())
    say(end=True)
    out.flush()
    # What a library does in its destructors is not what is tested here, and must not hang the run.
    os._exit(0)


# A test that starts processes by `spawn` imports this file anew in each of them.
if __name__ == "__main__":
    main()

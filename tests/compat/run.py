"""Runs the tests of CUDA software that real people use on softcuda, natively or through a pool, and counts.

usage: run.py --road native|shm|tcp --suite NAME [--suite NAME ...] [--only TEXT] [--resume] --results DIR
       run.py --table DIR            prints the markdown of docs/compatibility.md from the results

A module's results are a file DIR/SUITE@ROAD/MODULE.json, written when the module has ended: a run that was stopped goes on
with `--resume`, and a module that is run again replaces its own results only. Each test module runs in a process of its own (`child.py`). A test that takes longer than the limit, or in which the process
dies, counts as failed, and the module goes on with the next test in a new process. Standard library only.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RELEASE = ROOT / "target" / "release"
PYTHON = ROOT / "target" / "compat-venv" / "bin" / "python"
# Seconds for one test; a CPU is slower than the cards that these tests were written for.
TEST_LIMIT = 300

# Suite: (how its modules are found, its environment).
SUITES = {
    # Some of its tests share memory with CuPy.
    "numba": ("numba", {"CUPY_COMPILE_WITH_PTX": "1"}),
    "cupy": ("own:cupy_suite", {"CUPY_COMPILE_WITH_PTX": "1"}),
    # CuPy's own compiled sort and scan modules hold PTX for compute capability 12.0 only.
    "cupy-12.0": ("own:cupy_prebuilt_suite", {"CUPY_COMPILE_WITH_PTX": "1", "SOFTCUDA_DEVICES": str(HERE / "capability-12.0.toml")}),
    "nvrtc": ("own:nvrtc_suite", {}),
    # Only the tests that run on a CUDA device: Warp has them for the CPU as well.
    "warp": ("warp", {"COMPAT_PRELUDE": "warp_ptx", "COMPAT_ONLY": "_cuda_|^(?!.*_cpu$)"}),
    # For compute capability 9.0 it writes `wgmma`, which softcuda refuses. It has two compilers of NVIDIA's, by the
    # architecture; which one for what changes with its version.
    "triton": ("own:triton_suite", {
        "SOFTCUDA_DEVICES": str(HERE / "capability-8.9.toml"),
        **dict.fromkeys(("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"), str(HERE / "ptxas-pass-through")),
    }),
}

# The basic ones of Warp's tests: language, arrays, launches, atomics, tiles, matrices, no examples and no rendering; not
# `large`, whose kernels of 2^31 threads and more take a CPU hours.
WARP = """arithmetic array array_reduce atomic atomic_bitwise atomic_cas bool bit_count bf16 codegen compile_consts conditional copy
ctypes dense enum fast_math fixedarray fp16 func generics grad hash_grid indexedarray intersect iter launch lerp lvalue
mat mat_lite math matmul_lite mempool noise operators pinned quat radix_sort rand reload rounding runlength_encode scalar_ops
smoothstep spatial special_values static streams struct struct_attribute tape tile tile_load tile_mathdx tile_reduce tile_shared_memory
tuple types utils vec vec_lite volume""".split()


def modules(how):
    if how.startswith("own:"):
        return [how[4:]]
    code = {
        "numba": "import importlib.util, pathlib\n"
        "base = pathlib.Path(importlib.util.find_spec('numba_cuda').origin).parent / 'numba' / 'cuda' / 'tests'\n"
        "for p in sorted(base.rglob('test_*.py')):\n"
        "    if 'cudasim' not in p.parts:\n"
        "        print('numba.cuda.tests.' + '.'.join(p.relative_to(base).with_suffix('').parts))",
        "warp": "import importlib.util, pathlib\n"
        "base = pathlib.Path(importlib.util.find_spec('warp').origin).parent / 'tests'\n"
        "for p in sorted(base.rglob('test_*.py')):\n"
        "    print('warp.tests.' + '.'.join(p.relative_to(base).with_suffix('').parts))",
    }[how]
    found = subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    if how == "warp":
        found = [name for name in found if name.rpartition(".test_")[2] in WARP]
    return found


def command(road, environment):
    """The start of a command line, and the environment, for one road."""
    env = dict(os.environ, PYTHONPATH=str(HERE / "suites"), PYTHONDONTWRITEBYTECODE="1", **environment)
    for key, folder in (("CUPY_CACHE_DIR", "cupy"), ("TRITON_CACHE_DIR", "triton"), ("WARP_CACHE_PATH", "warp")):
        env[key] = str(ROOT / "target" / "compat-cache" / folder)
    if road == "native":
        libraries = ROOT / "target" / "compat-native"
        libraries.mkdir(parents=True, exist_ok=True)
        link = libraries / "libcuda.so.1"
        if not link.is_symlink():
            link.symlink_to(RELEASE / "libsoftcuda.so")
        env["LD_PRELOAD"] = str(link)
        env["LD_LIBRARY_PATH"] = str(libraries)
        return [], env
    env["LD_LIBRARY_PATH"] = str(RELEASE / "gpupool")
    return [str(RELEASE / "pool-run"), "--embedded", "--transport", road, "--"], env


class Progress:
    """What a child has written so far."""

    def __init__(self, file):
        self.file, self.rest = file, ""
        self.running, self.ended, self.lines = None, False, []

    def read(self):
        """True if there was something new."""
        new = self.file.read()
        *whole, self.rest = (self.rest + new).split("\n")
        for entry in map(json.loads, whole):
            if "start" in entry:
                self.running = entry["start"]
            elif "id" in entry:
                self.running = None
                self.lines.append(entry)
            elif "end" in entry:
                self.ended = True
        return bool(new)


def attempt(prefix, env, module, skip, limit):
    """One process: the results of its tests, the test that was running when it ended early or None, and why."""
    with (
        tempfile.NamedTemporaryFile("w", suffix=".skip") as skipfile,
        tempfile.NamedTemporaryFile("r", suffix=".json") as out,
        tempfile.TemporaryFile() as noise,
    ):
        skipfile.write("\n".join(skip))
        skipfile.flush()
        process = subprocess.Popen(
            [*prefix, PYTHON, HERE / "child.py", out.name, skipfile.name, module],
            env=env, stdout=noise, stderr=noise, stdin=subprocess.DEVNULL, start_new_session=True,
        )
        progress, since, late = Progress(out), time.monotonic(), False
        while process.poll() is None:
            if progress.read():
                since = time.monotonic()
            elif time.monotonic() - since > limit:
                # Its process group: it may have children (compilers, a private server).
                os.killpg(process.pid, 9)
                late = True
            time.sleep(0.05)
        progress.read()
        stuck = progress.running or "(loading)"
        if late:
            return progress.lines, stuck, "took longer than %d s" % limit
        if progress.ended:
            return progress.lines, None, ""
        noise.seek(0)
        tail = noise.read().decode(errors="replace").strip().split("\n")[-1][:200]
        return progress.lines, stuck, "the process ended (status %s): %s" % (process.returncode, tail)


def run_module(road, suite, module, limit):
    how, environment = SUITES[suite]
    prefix, env = command(road, environment)
    lines = []
    # Each round ends at one bad test at the most; a module with more of them is given up.
    for _ in range(40):
        done, stuck, why = attempt(prefix, env, module, [line["id"] for line in lines], limit)
        lines += done
        if stuck is None:
            break
        lines.append({"id": module if stuck == "(loading)" else stuck, "result": "failed", "why": why})
        if stuck == "(loading)":
            break
    return lines


def table(folder):
    rows = collections.defaultdict(collections.Counter)
    failures = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted(pathlib.Path(folder).glob("*@*/*.json")):
        suite, road = path.parent.name.rsplit("@", 1)
        for line in json.loads(path.read_text()):
            rows[suite, road][line["result"]] += 1
            if line["result"] == "failed":
                failures[suite][line["id"]].append((road, line["why"]))
    print("| software | road | passed | failed | skipped by itself |\n|---|---|---|---|---|")
    for (suite, road), count in sorted(rows.items()):
        print(f"| {suite} | {road} | {count['ok']} | {count['failed']} | {count['skipped']} |")
    for suite, tests in sorted(failures.items()):
        print(f"\n### {suite}: what fails\n")
        # Tests of one module that fail on the same roads with the same words are one line.
        alike = collections.defaultdict(list)
        for test, roads in sorted(tests.items()):
            module = test.rpartition(".")[0].rpartition(".")[0]
            whys = " / ".join(sorted({why[:240] for _, why in roads}))
            alike[module, ", ".join(road for road, _ in roads), whys].append(test.rpartition(".")[2])
        for (module, roads, whys), names in alike.items():
            named = f"`{names[0]}`" if len(names) == 1 else f"{len(names)} tests, `{names[0]}` first,"
            print(f"* `{module}` {named} ({roads}): {whys}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--road", choices=["native", "shm", "tcp"], default="native")
    parser.add_argument("--suite", action="append", choices=sorted(SUITES))
    parser.add_argument("--only", default="", help="only modules whose name holds this text")
    parser.add_argument("--resume", action="store_true", help="leave out the modules that have results already")
    parser.add_argument("--limit", type=int, default=TEST_LIMIT, help="seconds for one test")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "target" / "compat-results")
    parser.add_argument("--table", type=pathlib.Path)
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    failed = 0
    for suite in options.suite or sorted(SUITES):
        folder = options.results / f"{suite}@{options.road}"
        folder.mkdir(parents=True, exist_ok=True)
        for module in modules(SUITES[suite][0]):
            results = folder / f"{module}.json"
            if options.only not in module or (options.resume and results.exists()):
                continue
            began = time.monotonic()
            lines = run_module(options.road, suite, module, options.limit)
            results.write_text(json.dumps(lines, indent=0))
            count = collections.Counter(line["result"] for line in lines)
            print(
                f"{suite} {options.road} {module}: {count['ok']} passed, {count['failed']} failed, {count['skipped']} skipped,"
                f" {time.monotonic() - began:.0f} s",
                flush=True,
            )
            for line in lines:
                if line["result"] == "failed":
                    print(f"    {line['id']}: {line['why']}", flush=True)
            failed += count["failed"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs one file of tinygrad's tests with its CUDA backend and PTX renderer on the simulated GPU.

usage: run.py BUILD direct|limited FILE        (FILE relative to tests/foreign/tinygrad)
       run.py --known                          counts the known failures: at most one test in a hundred

`limited` runs it in a slice, through the limiter. Prints `foreign: FILE MODE: N passed, …`. Exit 77: cannot run here.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
SUITE = HERE / "tinygrad"
CACHE = pathlib.Path(os.environ.get("TENSOR_FUSION_CACHE")
                     or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tensor-fusion")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def main(build, mode, file):
    build = pathlib.Path(build).resolve()
    python = CACHE / "venv/bin/python"
    if not python.is_file():
        skip(f"no Python environment in {CACHE}/venv; run ./dev setup")
    if not (build / "sim/libcuda.so.1").exists():
        print(f"{build}/sim/libcuda.so.1 is missing: build it first")
        return 1
    path = f"{CACHE}/bin:{os.environ['PATH']}"
    if not shutil.which("clang", path=path):
        skip("tinygrad needs a `clang` on the path; run ./dev setup")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as own:
        environment = {**os.environ, "PATH": path, "DEV": "CUDA:PTX", "FORWARD_ONLY": "1", "CACHEDB": f"{own}/kernels.db",
                       "DERANDOMIZE_CI": "1", "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_STORAGE_DIRECTORY": f"{own}/hypothesis"}
        limited = ["--limited"] if mode == "limited" else []
        done = subprocess.run([HERE.parent / "on_sim", build, "--machine", "2xh100", *limited, "--",
                               python, "-m", "pytest", "-q", "--timeout", "300", "-p", "no:cacheprovider",
                               f"--junitxml={own}/results.xml", "-o", "junit_family=xunit1", file],
                              cwd=SUITE, env=environment)
        if not pathlib.Path(f"{own}/results.xml").is_file():
            print(f"pytest wrote no results (exit {done.returncode})")
            return 1
        suite = xml.parse(f"{own}/results.xml").getroot().find("testsuite")
    count = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
    known = sum(case.find("skipped") is not None and case.find("skipped").get("type") == "pytest.xfail" for case in suite)
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    print(f"foreign: {file} {mode}: {passed} passed, {failed} failed, {known} known failures, {count['skipped'] - known} skipped")
    return 0 if done.returncode == 0 and failed == 0 and passed > 0 else 1


def count_known():
    rows = [line for line in (SUITE / "known_failures.txt").read_text().splitlines() if line.strip() and not line.startswith("#")]
    unexplained = [row for row in rows if len(row.split()) < 4]
    tests = sum(file.read_text().count("  def test_") for file in SUITE.glob("test/**/test_*.py"))
    print(f"{len(rows)} known failures of {tests} tests; without a reason: {unexplained}")
    return 0 if len(rows) * 100 <= tests and not unexplained else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--known"]:
        sys.exit(count_known())
    if len(sys.argv) != 4 or sys.argv[2] not in ("direct", "limited"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

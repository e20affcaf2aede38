#!/usr/bin/env python3
"""Runs one file of tinygrad's tests with its CUDA backend and PTX renderer on the simulated GPU.

usage: run.py BUILD direct|limited FILE        (FILE relative to tests/foreign/tinygrad)
       run.py --known                          counts the known failures: at most one test in a hundred
       run.py --self-test                      that a figure too low or too high fails

`limited` runs it in a slice, through the limiter. Prints `foreign: FILE MODE: N passed, …`. expected.txt has the figures
that a run may not fall short of. Exit 77: cannot run here.
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


def expected():
    """{(file, mode): (passed, skipped)}"""
    rows = [line.split() for line in (HERE / "expected.txt").read_text().splitlines() if line and not line.startswith("#")]
    return {(file, mode): (int(passed), int(skipped)) for file, mode, passed, skipped in rows}


def shortfalls(table, file, mode, passed, skipped):
    """What is wrong with a run, as sentences; `skipped` are names."""
    if (file, mode) not in table:
        return [f"{file} {mode} has no row in tests/foreign/expected.txt; it would be `{file} {mode} {passed} {len(skipped)}`"]
    least, most = table[file, mode]
    found = []
    if passed < least:
        found.append(f"{file} {mode}: {passed} tests passed, {least} are expected")
    if len(skipped) > most:
        found.append(f"{file} {mode}: {len(skipped)} tests were skipped, {most} are expected; among these: {', '.join(skipped)}")
    return found


def self_test():
    table = {("f", "direct"): (10, 1)}
    good = [(10, ["a"]), (11, []), (12, ["a"])]
    bad = [(9, ["a"]), (10, ["a", "b"]), (0, [])]
    wrong = [row for row in good if shortfalls(table, "f", "direct", *row)]
    wrong += [row for row in bad if not shortfalls(table, "f", "direct", *row)]
    wrong += [] if shortfalls(table, "g", "direct", 10, []) else ["a file without a row"]
    files = {str(file.relative_to(SUITE)) for file in SUITE.glob("test/**/test_*.py")}
    rows = {(file, mode) for file in files for mode in ("direct", "limited")}
    wrong += sorted(rows ^ set(expected()))
    print(f"wrong: {wrong}" if wrong else "every shortfall is found, and each file has its rows")
    return 1 if wrong else 0


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
    known, skipped = 0, []
    for case in suite:
        if (mark := case.find("skipped")) is None:
            continue
        if mark.get("type") == "pytest.xfail":
            known += 1
        else:
            skipped.append(f"{case.get('classname').rpartition('.')[2]}::{case.get('name')} ({mark.get('message')})")
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    print(f"foreign: {file} {mode}: {passed} passed, {failed} failed, {known} known failures, {len(skipped)} skipped")
    problems = shortfalls(expected(), file, mode, passed, skipped)
    for problem in problems:
        print(f"foreign: {problem}")
    return 0 if done.returncode == 0 and failed == 0 and passed > 0 and not problems else 1


def count_known():
    rows = [line for line in (SUITE / "known_failures.txt").read_text().splitlines() if line.strip() and not line.startswith("#")]
    unexplained = [row for row in rows if len(row.split()) < 4]
    tests = sum(file.read_text().count("  def test_") for file in SUITE.glob("test/**/test_*.py"))
    print(f"{len(rows)} known failures of {tests} tests; without a reason: {unexplained}")
    return 0 if len(rows) * 100 <= tests and not unexplained else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--known"]:
        sys.exit(count_known())
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) != 4 or sys.argv[2] not in ("direct", "limited"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

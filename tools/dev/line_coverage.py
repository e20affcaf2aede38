#!/usr/bin/env python3
"""Adds up what gcov counted in a build folder: lines reached by folder, and a last line `coverage: lines_percent=…`.

usage: line_coverage.py BUILD [FOLDER] | line_coverage.py --self-test      FOLDER: of the sources, src/pool

A line counts once, however many objects contain it, and is reached when it was in any of them. Tests, benchmarks and fuzzers do not
count.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

NOT_COUNTED = re.compile(r"_(test|bench|fuzz)\.cpp$|(^|/)(fake_|test_|testing/)|^tests/|^tools/")


def add(lines, report, root, folder):
    """Adds one object's report (gcov --json-format) to lines: file -> {line: reached}."""
    for file in report["files"]:
        path = pathlib.Path(report.get("current_working_directory", "."), file["file"]).resolve()
        if not path.is_relative_to(root):
            continue
        name = str(path.relative_to(root))
        if not name.startswith((folder or "").rstrip("/") + ("/" if folder else "")) or NOT_COUNTED.search(name) or name.startswith("build/"):
            continue
        reached = lines.setdefault(name, {})
        for line in file["lines"]:
            reached[line["line_number"]] = reached.get(line["line_number"], False) or line["count"] > 0


def told(lines):
    """The lines to print: one for each folder, and the sum."""
    folders = {}
    for name, reached in lines.items():
        row = folders.setdefault(str(pathlib.PurePath(name).parent), [0, 0])
        row[0] += sum(reached.values())
        row[1] += len(reached)
    text = [f"{folder}: {100 * hit / all_lines:.1f} % of {all_lines} lines" for folder, (hit, all_lines) in sorted(folders.items()) if all_lines]
    hit, all_lines = (sum(row[i] for row in folders.values()) for i in (0, 1))
    return text, hit, all_lines


def report_of(data):
    done = subprocess.run(["gcov", "--json-format", "--stdout", data.name], cwd=data.parent, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def self_test():
    def report(file, counts):
        return {"current_working_directory": "/tree/build/x", "files": [
            {"file": file, "lines": [{"line_number": n, "count": c} for n, c in counts.items()]}]}

    lines = {}
    for one in (report("../../src/pool/place.cpp", {1: 1, 2: 0, 3: 0}), report("../../src/pool/place.h", {1: 0}),
                report("../../src/pool/place.h", {1: 4}),  # reached in another object
                report("../../src/pool/place_test.cpp", {1: 1}), report("/usr/include/c++/12/vector", {1: 1}),
                report("../../src/poolside/x.cpp", {1: 1})):
        add(lines, one, pathlib.Path("/tree"), "src/pool")
    got = told(lines)
    wanted = (["src/pool: 50.0 % of 4 lines"], 2, 4)
    print(f"planted reports: {'as wanted' if got == wanted else f'{got} instead of {wanted}'}")
    return 0 if got == wanted else 1


def main(build, folder=None):
    root = pathlib.Path(__file__).resolve().parents[2]
    data = sorted(pathlib.Path(build).resolve().rglob("*.gcda"))
    lines = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for reports in pool.map(report_of, data):
            for report in reports:
                add(lines, report, root, folder)
    text, hit, all_lines = told(lines)
    if all_lines == 0:
        print(f"coverage: nothing was counted in {build}")
        return 1
    print("\n".join(text))
    print(f"coverage: lines_percent={100 * hit / all_lines:.1f} lines={all_lines} reached={hit} files={len(lines)}")
    return 0


sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else main(*sys.argv[1:3]))

#!/usr/bin/env python3
"""Adds up ctest's JUnit files: failed tests and why, skipped tests with their reason, foreign programs by file, a last line.

usage: sum_tests.py [--broken N] FILE.xml… | --self-test
Exits 1 when anything failed (N: builds that did not get as far as tests).
"""
import argparse
import contextlib
import io
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree as xml


def reason_of(case):
    """Why a test did not run: what it printed last before saying so."""
    output = case.findtext("system-out") or ""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"skip|cannot|needs|missing", line, re.I) and not line.startswith("[")]
    message = case.find("skipped")
    return (told or lines or [message.get("message", "") if message is not None else "no reason printed"])[-1][:160]


MOST_LINES = 6
MOST_COLUMNS = 200


def of_pytest(lines):
    """Each failed case, with the first line of what was wrong: the summary itself cuts that off, or leaves it out."""
    wrong = []  # of each failure, in the order of the summary
    for line in lines:
        if re.fullmatch(r"_+ [^_].* _+", line):
            wrong.append("")
        elif line.startswith("E   ") and wrong and not wrong[-1]:
            wrong[-1] = line[1:].strip()
    told = []
    for line in lines:
        if match := re.match(r"(?:FAILED|ERROR) (\S+\.py(?:::.*?)?)(?: - (.*))?$", line):
            reason = wrong.pop(0) if wrong else ""
            reason = reason or match.group(2)
            # Its own words, however long the name of the case.
            name = match.group(1)[: MOST_COLUMNS // 2]
            told.append(f"{name}: {reason}" if reason else match.group(1))
    return told


def of_gtest(lines):
    told = []
    for i, line in enumerate(lines):
        if re.search(r":\d+: Failure$", line):
            told.append(line)
            for following in lines[i + 1:]:
                if not following.strip() or following.startswith("[") or re.search(r":\d+: Failure$", following):
                    break
                told.append(following)
    return told


def why(case):
    """What a failed test said of it: some lines, none of them long."""
    lines = (case.findtext("system-out") or "").splitlines()
    told = [line for line in lines if re.match(r"SUMMARY: \w+Sanitizer", line)] + (of_pytest(lines) or of_gtest(lines))
    if not told:
        last = [line for line in lines if line.strip()][1 - MOST_LINES:]
        told = [f"after {float(case.get('time') or 0):.0f} s, {'having printed last:' if last else 'without a word'}", *last]
    left = len(told) - MOST_LINES
    if left > 0:
        told = [*told[: MOST_LINES - 1], f"… and {left + 1} more lines"]
    return [line.strip()[:MOST_COLUMNS] for line in told]


def self_test():
    """Plants a report, and looks for what has to be said of it."""
    bar = "\n".join(["=== FAILURES ===", "___ test_first[wipe] ___", "    assert 5 < 4", "E   AssertionError: 5 is too much",
                     "E   assert 5 < 4", "___ TestGroup.test_second ___", "E   subprocess.TimeoutExpired: 30 seconds",
                     "=== short test summary info ===", "FAILED test_a.py::test_first[wipe]",
                     "FAILED test_a.py::TestGroup::test_second - subpro..."])
    gtest = "[ RUN      ] A.b\n../../src/a_test.cpp:7: Failure\nExpected: (1) > (2)\n[  FAILED  ] A.b\n"
    outputs = {"of pytest": bar, "of gtest": gtest, "of another": "begins\n" * 20 + "x" * 999 + "\nends so\n", "silent": "",
               "of many": "".join(f"a.cpp:{i}: Failure\nno\n" for i in range(50))}
    expected = ["test_a.py::test_first[wipe]: AssertionError: 5 is too much\n",
                "test_a.py::TestGroup::test_second: subprocess.TimeoutExpired: 30 seconds\n",
                "../../src/a_test.cpp:7: Failure\n", "Expected: (1) > (2)\n", "ends so\n", "after 3 s, without a word\n",
                "… and 95 more lines\n", "skipped planted: skips: it needs a card\n", "1 passed, 5 failed, 1 skipped\n"]
    suite = xml.Element("testsuite")

    def plant(name, status, output):
        xml.SubElement(xml.SubElement(suite, "testcase", name=name, status=status, time="3"), "system-out").text = output

    plant("passes", "run", "of pytest")
    plant("skips", "notrun", "it needs a card")
    for name, output in outputs.items():
        plant(name, "fail", output)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        xml.ElementTree(suite).write(f"{folder}/planted.xml")
        code = add_up([f"{folder}/planted.xml"], 0)
    said = said.getvalue()
    missing = [line for line in expected if line not in said]
    lines_of = [len(part.splitlines()) for part in said.split("FAILED planted: ")[1:]]
    longest = max(len(line) for line in said.splitlines())
    right = code == 1 and not missing and max(lines_of) <= MOST_LINES + 2 and longest <= MOST_COLUMNS + 2
    print("1 passed, 0 failed" if right else f"missing {missing}, or too long, or not a failure ({code}):\n{said}")
    return 0 if right else 1


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--broken", type=int, default=0)
    arguments.add_argument("files", nargs="*")
    arguments.add_argument("--self-test", action="store_true")
    options = arguments.parse_args()
    return self_test() if options.self_test else add_up(options.files, options.broken)


def add_up(files, broken):
    passed, failed, skipped, foreign = 0, [], [], []
    for file in files:
        if not pathlib.Path(file).is_file():
            continue
        suite = pathlib.Path(file).stem
        cases = xml.parse(file).getroot().findall("testcase")
        for case in cases:
            name, status = f"{suite}: {case.get('name')}", case.get("status")
            if status == "run":
                passed += 1
            elif status in ("notrun", "disabled"):
                skipped.append((name, reason_of(case)))
            else:
                failed.append((name, why(case)))
            foreign += re.findall(r"^foreign: .*$", case.findtext("system-out") or "", re.M)
        seconds = sum(float(case.get("time") or 0) for case in cases)
        print(f"{suite}: {len(cases)} tests, {seconds:.0f} s of test time")
    for line in foreign:
        print(line)
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")
    for name, reasons in failed:
        print(f"FAILED {name}", *reasons, sep="\n  ")
    if broken:
        print(f"FAILED to build or start: {broken} of the test builds (see above)")
    total_failed = len(failed) + broken
    if not passed and not total_failed:
        print("FAILED: no test ran")
        total_failed = 1
    print(f"{passed} passed, {total_failed} failed, {len(skipped)} skipped")
    return 1 if total_failed else 0


sys.exit(main())

#!/usr/bin/env python3
"""Adds up ctest's JUnit files: failed tests, skipped tests with their reason, foreign programs by file, and a last line.

usage: sum_tests.py [--broken N] FILE.xml…      exits 1 when anything failed (N: builds that did not get as far as tests)
"""
import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def reason_of(case):
    """Why a test did not run: what it printed last before saying so."""
    output = case.findtext("system-out") or ""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"skip|cannot|needs|missing", line, re.I) and not line.startswith("[")]
    message = case.find("skipped")
    return (told or lines or [message.get("message", "") if message is not None else "no reason printed"])[-1][:160]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--broken", type=int, default=0)
    arguments.add_argument("files", nargs="*")
    options = arguments.parse_args()
    passed, failed, skipped, foreign = 0, [], [], []
    for file in options.files:
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
                failed.append(name)
            foreign += re.findall(r"^foreign: .*$", case.findtext("system-out") or "", re.M)
        seconds = sum(float(case.get("time") or 0) for case in cases)
        print(f"{suite}: {len(cases)} tests, {seconds:.0f} s of test time")
    for line in foreign:
        print(line)
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")
    for name in failed:
        print(f"FAILED {name}")
    if options.broken:
        print(f"FAILED to build or start: {options.broken} of the test builds (see above)")
    total_failed = len(failed) + options.broken
    if not passed and not total_failed:
        print("FAILED: no test ran")
        total_failed = 1
    print(f"{passed} passed, {total_failed} failed, {len(skipped)} skipped")
    return 1 if total_failed else 0


sys.exit(main())

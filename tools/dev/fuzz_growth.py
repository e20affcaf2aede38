#!/usr/bin/env python3
"""Whether libFuzzer saw anything in a run: from its log, that of the code under test was counted and that the inputs reached
more of it than an empty one does. A fuzzer that sees nothing tries bytes at random and calls that success.

usage: fuzz_growth.py NAME LOG [EMPTY_LOG] | fuzz_growth.py --self-test      prints one line; exits 1 when it is blind

EMPTY_LOG is of a run over the empty input alone.
"""
import pathlib
import re
import sys


def figures(log):
    """(counters, cov and ft first and last, inputs kept, executions); a figure that is not in the log is 0"""
    counters = sum(map(int, re.findall(r"\((\d+) inline 8-bit counters\)", "\n".join(
        line for line in log.splitlines() if "Loaded" in line and "modules" in line))))
    seen = [tuple(map(int, m)) for m in re.findall(r"^#\d+\s+\S+\s+cov: (\d+) ft: (\d+) corp: (\d+)", log, re.M)]
    executed = re.findall(r"^stat::number_of_executed_units:\s*(\d+)", log, re.M)
    none = (0, 0, 0)
    return counters, (seen or [none])[0], (seen or [none])[-1], int(executed[-1]) if executed else 0


def judge(name, log, empty_log=""):
    """(line, whether it saw)"""
    counters, first, last, executed = figures(log)
    empty = figures(empty_log)[2]
    line = (f"{name}: cov {first[0]} -> {last[0]} of {counters} edges, ft {first[1]} -> {last[1]}, "
            f"{last[2]} inputs kept, {executed} executed (an empty input: cov {empty[0]})")
    if counters == 0 or last[0] == 0:
        return line + ": BLIND: nothing under test is compiled with -fsanitize=fuzzer-no-link", False
    if last[0] <= empty[0]:
        return line + ": BLIND: nothing was reached beyond what an empty input reaches", False
    return line, True


def self_test():
    seeing = ("INFO: Loaded 1 modules   (4210 inline 8-bit counters): 4210 [0x1, 0x2), \n#2\tINITED cov: 300 ft: 700 corp: 9/4Kb exec/s: 0 rss: 40Mb\n"
              "#900\tNEW    cov: 420 ft: 1001 corp: 21/9Kb lim: 4096\n#1000\tDONE   cov: 425 ft: 1200 corp: 30/9Kb lim: 4096\n"
              "stat::number_of_executed_units: 1000\n")
    empty = seeing.split("#2")[0] + "#2\tINITED cov: 80 ft: 81 corp: 1/1b exec/s: 0 rss: 40Mb\n"
    not_instrumented = "#2\tINITED exec/s: 0 rss: 30Mb\nWARNING: no interesting inputs were found so far.\n#1000\tDONE   corp: 1/1b lim: 4096\n"
    stuck = seeing.replace("cov: 300", "cov: 80").replace("cov: 420", "cov: 80").replace("cov: 425", "cov: 80")
    planted = [("seeing", seeing, empty, True), ("not instrumented", not_instrumented, not_instrumented, False),
               ("stuck at the first check", stuck, empty, False), ("an empty log", "", "", False)]
    wrong = [name for name, log, nothing, sees in planted if judge(name, log, nothing)[1] != sees]
    for name in wrong:
        print(f"{name}: judged wrongly: {judge(name, dict((p[0], p[1]) for p in planted)[name])[0]}")
    print(f"{len(planted)} planted logs, {len(wrong)} judged wrongly")
    return 1 if wrong else 0


if sys.argv[1:] == ["--self-test"]:
    sys.exit(self_test())
text = [pathlib.Path(file).read_text(errors="replace") for file in sys.argv[2:]]
said, sees = judge(sys.argv[1], *text)
print(said)
sys.exit(0 if sees else 1)

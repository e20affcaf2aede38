#!/usr/bin/env python3
"""Which program of ours exercises which hook of the limiter.

    coverage.py            prints a table: hook, priority, the sources that call it
    coverage.py --check    fails when a hook of priority 0 or 1 is called by none

A hook counts as exercised where its exact exported name is called or looked up, or put together from a beginning and the
suffix of its variant.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "src/guest/limiter/table.inc"
SOURCES = [*sorted((ROOT / "tests/programs").glob("*")), *sorted((ROOT / "tests/limiter").glob("*.cpp")),
           *sorted((ROOT / "src/guest/limiter/testing").glob("*.cpp")),
           *sorted((ROOT / "src/guest/limiter/hooks").glob("*_test.cpp"))]
SUFFIXES = ("_v2", "_v3")


def hooks():
    """Exported name -> priority; the rows of NVML count as 1."""
    text = re.sub(r"//[^\n]*|#define[^\n]*\\\n[^\n]*", "", TABLE.read_text())
    found = {}
    for kind, name, rest in re.findall(r"\bTF_(HOOK|TWINS|BLOCKING_TWINS|NVML)\((\w+),\s*(\d?)", text):
        if name == "symbol":
            continue
        priority = int(rest) if rest else 1
        found[name] = priority
        if kind == "TWINS":
            found[name + "_ptsz"] = priority
        if kind == "BLOCKING_TWINS":
            found[name + "_ptds"] = priority
    return found


def main():
    words = {source: set(re.findall(r"\w+", source.read_text())) for source in SOURCES
             if source.suffix in (".cpp", ".h") and source.name != "driver.h"}
    missing = []
    for name, priority in hooks().items():
        users = sorted({source.stem for source, seen in words.items() if name in seen or
                        (name.startswith("nvml") and name[-3:] in SUFFIXES and name[:-3] in seen and name[-3:] in seen)})
        if "--check" not in sys.argv:
            print(f"{name:45} {priority}  {' '.join(users) or '-'}")
        if priority < 2 and not users:
            missing.append(name)
    for name in missing:
        print(f"no program exercises {name}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes, or with --check compares, the committed files that the program itself prints. Run through `./dev generate`."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "build/release/bin/tensor-fusion"
FILES = {
    "docs/reference/tensor-fusion.1": ["help", "--man"],
    "docs/reference/command-line.md": ["help", "--markdown"],
}

stale = 0
environment = {**os.environ, "LC_ALL": "C.UTF-8"}
for name, arguments in FILES.items():
    printed = subprocess.run([PROGRAM, *arguments], capture_output=True, check=True, env=environment).stdout
    path = ROOT / name
    if path.is_file() and path.read_bytes() == printed:
        continue
    stale += 1
    if "--check" in sys.argv:
        print(f"{name} is out of date: run ./dev generate")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(printed)
        print(f"wrote {name}")
print(f"generated files: {len(FILES)}, {stale} {'out of date' if '--check' in sys.argv else 'changed'}")
sys.exit(1 if stale and "--check" in sys.argv else 0)

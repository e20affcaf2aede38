#!/usr/bin/env python3
"""clang-tidy on the files that changed, then on others while time is left; a file that passed is remembered by content.

usage: tidy.py CLANG_TIDY BUILD [SECONDS]
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

tidy, build = sys.argv[1], pathlib.Path(sys.argv[2])
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 240.0  # the whole tree is looked at over several runs
root = pathlib.Path(__file__).parents[2]
rules = (root / ".clang-tidy").read_text()
cache = pathlib.Path(os.environ.get("TF_CACHE", build)) / "tidy.json"
passed = set(json.loads(cache.read_text())) if cache.is_file() else set()

compiled = {pathlib.Path(e["file"]).resolve() for e in json.loads((build / "compile_commands.json").read_text())}
changed = subprocess.run(["git", "diff", "--name-only", "HEAD~20", "--", "*.cpp"], cwd=root, capture_output=True, text=True).stdout.split()
changed = {(root / name).resolve() for name in changed}
order = sorted(compiled, key=lambda file: (file not in changed, str(file)))
deadline = time.monotonic() + seconds


def look(file):
    """(digest, True passed, False failed, None no time; output)"""
    digest = hashlib.sha256((rules + file.read_text()).encode()).hexdigest()
    if digest in passed:
        return digest, True, ""
    if time.monotonic() > deadline:
        return digest, None, ""
    done = subprocess.run([tidy, "-p", build, "--quiet", file], cwd=root, capture_output=True, text=True)
    return digest, done.returncode == 0, done.stdout + done.stderr


failed = waiting = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for digest, outcome, output in pool.map(look, order):
        if outcome:
            passed.add(digest)
        elif outcome is None:
            waiting += 1
        else:
            failed += 1
            print(output)
cache.write_text(json.dumps(sorted(passed)))
print(f"clang-tidy: {len(order)} files, {failed} failed, {waiting} left for the next run (time limit {seconds:.0f} s)")
sys.exit(1 if failed else 0)

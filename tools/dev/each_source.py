#!/usr/bin/env python3
"""Compiles each file of build folder's compile_commands.json for its errors alone (-fsyntax-only): no objects, no links.

usage: each_source.py BUILD      files unchanged since they last passed are not compiled again
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

build = pathlib.Path(sys.argv[1])
commands = json.loads((build / "compile_commands.json").read_text())
known_file = build / "passed.json"
known = json.loads(known_file.read_text()) if known_file.is_file() else {}


def words_of(entry):
    words = shlex.split(entry["command"])
    if "ccache" in words[0]:
        words = words[1:]
    cut = words.index("-o")
    return words[:cut] + words[cut + 2:] + ["-fsyntax-only"]


def compile_one(entry):
    """(file, digest of everything it includes and how it is compiled, output of the compiler or None)"""
    words = words_of(entry)
    listed = subprocess.run([w for w in words if w != "-c"] + ["-MM"], cwd=entry["directory"], capture_output=True, text=True)
    digest = hashlib.sha256(" ".join(words).encode())
    for name in listed.stdout.replace("\\\n", " ").split(":", 1)[-1].split():
        digest.update((pathlib.Path(entry["directory"]) / name).read_bytes())
    digest = digest.hexdigest()
    if listed.returncode == 0 and known.get(entry["file"]) == digest:
        return entry["file"], digest, None
    done = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], digest, None if done.returncode == 0 else done.stderr


failed, now = 0, {}
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for file, digest, output in pool.map(compile_one, commands):
        if output is None:
            now[file] = digest
        else:
            failed += 1
            print(output[-3000:])
known_file.write_text(json.dumps(now))
print(f"{len(commands)} files, {failed} failed")
sys.exit(1 if failed else 0)

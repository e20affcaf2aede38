#!/usr/bin/env python3
"""clang-tidy on the files that changed, then on others while time is left. A file that passed is remembered by its content and that of
all headers of the project that it includes.

usage: tidy.py CLANG_TIDY BUILD [SECONDS] | tidy.py --self-test      the last line says how many were left for the next run
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.M)


class Digests:
    """Of a file and all that it includes in quotes, wherever that is found: beside it, or in one of the folders to look in."""

    def __init__(self, folders):
        self.folders = folders
        self.known = {}  # file -> (digest of its content, the files it includes)

    def look(self, file):
        if file not in self.known:
            content = file.read_bytes()
            included = []
            for name in INCLUDE.findall(content):
                for folder in (file.parent, *self.folders):
                    header = folder / name.decode()
                    if header.is_file():
                        included.append(header.resolve())
                        break
            self.known[file] = hashlib.sha256(content).digest(), included
        return self.known[file]

    def of(self, file, rules):
        """Every file counts once: headers may include each other."""
        seen, waiting = {file}, [file]
        while waiting:
            for header in self.look(waiting.pop())[1]:
                if header not in seen:
                    seen.add(header)
                    waiting.append(header)
        whole = hashlib.sha256(rules.encode())
        for one in sorted(seen):
            whole.update(self.look(one)[0])
        return whole.hexdigest()


def self_test():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name).resolve()
        (root / "room").mkdir()
        (root / "room/x.cpp").write_text('#include "room/x.h"\n#include <vector>\n')
        (root / "room/x.h").write_text('#include "y.h"\n#include "room/x.h"\n')
        (root / "room/y.h").write_text("int y;\n")
        (root / "room/z.h").write_text("int z;\n")

        def digest(rules="rules"):
            return Digests([root]).of(root / "room/x.cpp", rules)

        first, wrong = digest(), []
        for what, file, changes in (("a header of a header", "room/y.h", True), ("the file itself", "room/x.cpp", True),
                                    ("a header that it does not include", "room/z.h", False)):
            before = digest()
            (root / file).write_text((root / file).read_text() + "// changed\n")
            if (digest() != before) != changes:
                wrong.append(what)
        if digest("other rules") == digest() or first == digest():
            wrong.append("the rules")
    for what in wrong:
        print(f"{what} changed: judged wrongly")
    print(f"4 changes, {len(wrong)} judged wrongly")
    return 1 if wrong else 0


def main(tidy, build, seconds=240.0):  # the whole tree is looked at over several runs
    root = pathlib.Path(__file__).resolve().parents[2]
    rules = (root / ".clang-tidy").read_text()
    cache = pathlib.Path(os.environ.get("TF_CACHE", build)) / "tidy.json"
    passed = set(json.loads(cache.read_text())) if cache.is_file() else set()
    compiled = {pathlib.Path(e["file"]).resolve() for e in json.loads((build / "compile_commands.json").read_text())}
    changed = subprocess.run(["git", "diff", "--name-only", "HEAD~20", "--", "*.cpp"], cwd=root, capture_output=True, text=True).stdout
    changed = {(root / name).resolve() for name in changed.split()}
    order = sorted(compiled, key=lambda file: (file not in changed, str(file)))
    digests = Digests([root / "src", root])
    digest_of = {file: digests.of(file, rules) for file in order}
    deadline = time.monotonic() + seconds

    def look(file):
        """(file, True passed, False failed, None no time; output)"""
        if digest_of[file] in passed:
            return file, True, ""
        if time.monotonic() > deadline:
            return file, None, ""
        done = subprocess.run([tidy, "-p", build, "--quiet", file], cwd=root, capture_output=True, text=True)
        return file, done.returncode == 0, done.stdout + done.stderr

    failed = waiting = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, outcome, output in pool.map(look, order):
            if outcome:
                passed.add(digest_of[file])
            elif outcome is None:
                waiting += 1
            else:
                failed += 1
                print(output)
    cache.write_text(json.dumps(sorted(passed)))
    print(f"clang-tidy: {len(order)} files, {failed} failed, time limit {seconds:.0f} s")
    print(f"{waiting} of {len(order)} files left for the next run" if waiting else f"all {len(order)} files")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2]), *map(float, sys.argv[3:4])))

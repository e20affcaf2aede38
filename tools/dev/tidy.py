#!/usr/bin/env python3
"""clang-tidy on the files that changed, then on others while time is left, those first that were not read for longest. A file that
passed is remembered by its content and that of all headers of the project that it includes, so what was left is read by the next runs.

usage: tidy.py CLANG_TIDY BUILD [SECONDS] | tidy.py --self-test      the last line says how many of the files are known to pass
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


class Known:
    """What earlier runs found, in a file: contents that passed, and the number of the run that last read a file. Several trees may
    share it: what another has added meanwhile is kept."""

    def __init__(self, file):
        self.file = file
        self.passed, self.read = self.load()
        self.run = max(self.read.values(), default=0) + 1

    def load(self):
        try:
            found = json.loads(self.file.read_text())
            return set(found["passed"]), dict(found["read"])
        except (OSError, ValueError, KeyError, TypeError):  # nothing is known
            return set(), {}

    def ordered(self, names, changed):
        return sorted(names, key=lambda name: (name not in changed, self.read.get(name, 0), name))

    def keep(self):
        passed, read = self.load()
        read = {name: max(run, self.read.get(name, 0)) for name, run in read.items()}
        self.file.write_text(json.dumps({"passed": sorted(passed | self.passed), "read": {**self.read, **read}}))


def outcome(total, failed, left):
    known = f"all {total} files pass" if not failed + left else f"{total - failed - left} of {total} files pass"
    return known + (f", {failed} failed" if failed else "") + (f", {left} were NOT read: run it again" if left else "")


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
        # Each run has time for two of five, while a header that all include changes between the runs.
        names, seen = [f"{n}.cpp" for n in range(5)], set()
        for _ in range(3):
            known = Known(root / "tidy_known.json")
            for name in known.ordered(names, changed={"4.cpp"} if not seen else set())[:2]:
                known.read[name] = known.run
                seen.add(name)
            known.keep()
        if seen != set(names):
            wrong.append("a header that every file includes")
        for said, *counts in (("all 5 files pass", 5, 0, 0), ("2 of 5 files pass, 3 were NOT read: run it again", 5, 0, 3),
                              ("3 of 5 files pass, 1 failed, 1 were NOT read: run it again", 5, 1, 1)):
            if outcome(*counts) != said:
                wrong.append(outcome(*counts))
    for what in wrong:
        print(f"{what}: judged wrongly")
    print(f"8 cases, {len(wrong)} judged wrongly")
    return 1 if wrong else 0


def main(tidy, build, seconds=240.0):  # the whole tree is looked at over several runs
    root = pathlib.Path(__file__).resolve().parents[2]
    rules = (root / ".clang-tidy").read_text()
    known = Known(pathlib.Path(os.environ.get("TF_CACHE", build)) / "tidy_known.json")
    compiled = {os.path.relpath(pathlib.Path(e["file"]).resolve(), root) for e in json.loads((build / "compile_commands.json").read_text())}
    changed = subprocess.run(["git", "diff", "--name-only", "HEAD~20", "--", "*.cpp"], cwd=root, capture_output=True, text=True).stdout
    order = known.ordered(compiled, set(changed.split()))
    digests = Digests([root / "src", root])
    digest_of = {name: digests.of(root / name, rules) for name in order}
    deadline = time.monotonic() + seconds

    def look(name):
        """(file, True passed, False failed, None no time; output)"""
        if digest_of[name] in known.passed:
            return name, True, ""
        if time.monotonic() > deadline:
            return name, None, ""
        done = subprocess.run([tidy, "-p", build, "--quiet", name], cwd=root, capture_output=True, text=True)
        return name, done.returncode == 0, done.stdout + done.stderr

    failed = left = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, passed, output in pool.map(look, order):
            if passed is None:
                left += 1
                continue
            known.read[name] = known.run
            if passed:
                known.passed.add(digest_of[name])
            else:
                failed += 1
                print(output)
    known.keep()
    print(f"time limit {seconds:.0f} s")
    print(outcome(len(order), failed, left))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2]), *map(float, sys.argv[3:4])))

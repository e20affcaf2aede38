#!/usr/bin/env python3
"""Reads every #include under src/, sim/ and apps/ and fails on an arrow that src/layers.txt does not list.

usage: layers.py [ROOT]       check a tree (default: the repository)
       layers.py --self-test  prove on planted violations that the check fails when it should
"""
import pathlib
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
SUFFIXES = {".h", ".hpp", ".inc", ".cpp", ".c"}
TOPS = ("src", "sim", "apps")


class Layers:
    """src/layers.txt: for each room the rooms it may include, and the headers that only .cpp files may include."""

    def __init__(self, path):
        self.allowed, self.for_tests, self.pure, self.heavy, self.errors = {}, {}, [], [], []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            if line.startswith("heavy "):
                self.heavy += line.split()[1:]
                continue
            head, _, tail = line.partition(":")
            tail, _, tests = tail.partition("+test")
            room, *marks = head.split()
            for name in tail.split() + tests.split():
                if name not in self.allowed:
                    self.errors.append(f"src/layers.txt:{number}: {room} names {name}, which does not stand above it")
            self.allowed[room] = set(tail.split())
            self.for_tests[room] = set(tests.split())
            if "pure" in marks:
                self.pure.append(room)
        for room in self.pure:
            for name in self.allowed[room] - set(self.pure):
                self.errors.append(f"src/layers.txt: pure room {room} may not lean on {name}, which is not pure")

    def room_of(self, path):
        """The room a file belongs to: its longest listed folder. `path` is relative to the root."""
        parts = path.parent.parts
        if parts and parts[0] == "src":
            parts = parts[1:]
        for length in range(len(parts), 0, -1):
            if "/".join(parts[:length]) in self.allowed:
                return "/".join(parts[:length])
        return None


def target_of(root, source, name):
    """The file of the tree that an #include means, or None for one of the system."""
    for base in (source.parent, root / "src", root):
        if (base / name).is_file():
            return (base / name).resolve()
    return None


def check(root):
    root = root.resolve()
    layers = Layers(root / "src/layers.txt")
    errors = list(layers.errors)
    for top in TOPS:
        for source in sorted((root / top).rglob("*")):
            if source.suffix not in SUFFIXES:
                continue
            where = source.relative_to(root)
            room = layers.room_of(where)
            if room is None:
                errors.append(f"{where}: its folder is no room of src/layers.txt")
                continue
            allowed = layers.allowed[room] | {room}
            if re.search(r"_(test|bench|fuzz)$", source.stem):
                allowed |= layers.for_tests[room]
            text = source.read_text(errors="replace")
            for match in INCLUDE.finditer(text):
                kind, name = match.groups()
                line = text.count("\n", 0, match.start(1)) + 1
                target = target_of(root, source, name)
                if target is None:
                    if kind == '"':
                        errors.append(f"{where}:{line}: includes \"{name}\", which does not exist")
                    elif source.suffix in {".h", ".hpp"} and any(name == h or (h[-1] == "/" and name.startswith(h)) for h in layers.heavy):
                        errors.append(f"{where}:{line}: <{name}> is heavy and belongs in a .cpp file")
                    continue
                other = layers.room_of(target.relative_to(root))
                if other is not None and other not in allowed:
                    errors.append(f"{where}:{line}: {room} may not include {name} (room {other}); see src/layers.txt")
    return errors


def self_test():
    def tree(folder, files):
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    layers = "base pure\npool pure : base\nsystem : base\nnode : base pool system +test system\nsim/ptx : base\nheavy fmt/\n"
    files = {"src/layers.txt": layers, "src/base/a.h": "", "src/pool/b.h": '#include "base/a.h"\n', "src/system/c.h": "",
             "src/node/d.cpp": '#include "pool/b.h"\n#include <fmt/core.h>\n', "sim/ptx/e.cpp": '#include "base/a.h"\n'}
    planted = {
        "an unlisted arrow": ("src/pool/x.cpp", '#include "system/c.h"\n', "pool may not include"),
        "src leaning on sim": ("src/node/x.cpp", '#include "sim/ptx/e.cpp"\n', "node may not include"),
        "an arrow by relative path": ("src/pool/x.cpp", '#include "../system/c.h"\n', "pool may not include"),
        "a heavy header in a header": ("src/pool/x.h", "#include <fmt/core.h>\n", "heavy"),
        "a folder without a room": ("src/extra/x.cpp", "", "no room"),
        "an upward arrow in the list": ("src/layers.txt", "base : pool\npool : base\n", "does not stand above"),
        "a pure room on an impure one": ("src/layers.txt", "base\npool pure : base\n", "not pure"),
        "a missing header": ("src/pool/x.cpp", '#include "pool/none.h"\n', "does not exist"),
    }
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        errors = check(tree(folder, files))
        if errors:
            failures += 1
            print("a clean tree is refused:", *errors, sep="\n  ")
    for what, (name, text, expected) in planted.items():
        with tempfile.TemporaryDirectory() as folder:
            errors = check(tree(folder, {**files, name: text}))
            if not any(expected in error for error in errors):
                failures += 1
                print(f"not found: {what} ({errors})")
    print(f"layers self-test: {1 + len(planted) - failures} passed, {failures} failed")
    return failures


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test() else 0)
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"layers: {len(found)} problems")
    sys.exit(1 if found else 0)

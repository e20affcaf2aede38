#!/usr/bin/env python3
"""Reads every file of the tree for what does not belong there: work left for later, paths of one machine, headers we do
not own, names that say nothing, files grown too large.

usage: text.py [ROOT] | text.py --self-test
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# The words are cut in two so that this file does not find itself.
BANNED = [
    (r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", "finish it, or write it down where people look"),
    (r"(?i)\bnot (yet )?implem" r"ented\b", "do it, or refuse with the error the caller knows"),
    (r"(^|[^.\w*])/(wo" r"rk|ro" r"ot|ho" r"me/\w+)/", "a path of one machine"),
    (r"#\s*include\s*[<\"](cu" r"da\w*|nv" r"ml|cu" r"da_runtime\w*|nvrtc)\.h[>\"]", "we declare the ABI we need ourselves"),
    (r"(?i)\b(sub-?ag" r"ent|helper ses" r"sion|this ses" r"sion)\b", "the project speaks of itself alone"),
]
# The reader leaves at the first match; a writer that has more to say dies of SIGPIPE, and `pipefail` makes a failure of that:
# now and then, on a busy machine.
LEAVES_EARLY = re.compile(r"(?<!\|)\|&?\s*(grep\s+(-\S+\s+)*(-[a-zA-Z]*q|--quiet\b|--silent\b|-[a-zA-Z]*m\s*\d)|head\b)")
PIPEFAIL = re.compile(r"^\s*set\s.*\bpipefail\b", re.M)
NAMELESS = re.compile(r"(^|/)(common|utils?|helpers?|misc)(/|\.[a-z]+$)")
CODE = {".cpp", ".h", ".c", ".py", ".sh", ".cmake", ""}
FOREIGN = "tests/foreign/tinygrad/test/"  # copied unchanged with its licence; not ours to judge
LOOK_AGAIN_LINES = 400
LARGEST_LINES = 1000
LARGEST_BYTES = 256 * 1024


def files_of(root):
    try:
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
                                capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = [str(p.relative_to(root)) for p in root.rglob("*") if "build" not in p.parts]
    return sorted(name for name in set(listed) if name and (root / name).is_file() and not name.startswith(FOREIGN))


def shell_errors(name, text, lines):
    """Scripts under `set -o pipefail`, and what they source (*.sh)."""
    is_shell = name.endswith(".sh") or re.match(r"#!.*\b(ba|z)?sh\b", text)
    if not is_shell or not (name.endswith(".sh") or PIPEFAIL.search(text)):
        return []
    errors = []
    for pipe in LEAVES_EARLY.finditer(text):
        number = text.count("\n", 0, pipe.start()) + 1
        if not lines[number - 1].lstrip().startswith("#"):
            errors.append(f"{name}:{number}: {lines[number - 1].strip()[:80]!r}: under pipefail the writer's SIGPIPE is a failure: "
                          "grep … <<<\"$(…)\", or sed -n 1p, which reads to the end")
    return errors


def check(root):
    errors, long_files = [], []
    for name in files_of(root):
        data = (root / name).read_bytes()
        if NAMELESS.search(name):
            errors.append(f"{name}: name the noun; common, utils, helpers and misc have no owner")
        if len(data) > LARGEST_BYTES:
            errors.append(f"{name}: {len(data)} bytes; the largest file may have {LARGEST_BYTES}")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue
        lines = text.splitlines()
        if pathlib.Path(name).suffix in CODE and name != "LICENSE":
            if len(lines) > LARGEST_LINES:
                errors.append(f"{name}: {len(lines)} lines; past {LARGEST_LINES} nobody reads it whole: split it by its nouns")
            elif len(lines) > LOOK_AGAIN_LINES:
                long_files.append((len(lines), name))
        errors += shell_errors(name, text, lines)
        for number, line in enumerate(lines, 1):
            for pattern, why in BANNED:
                if re.search(pattern, line):
                    errors.append(f"{name}:{number}: {line.strip()[:80]!r}: {why}")
    return errors, sorted(long_files, reverse=True)[:10]


def self_test():
    planted = {
        "work left": ("a.cpp", "// TO" "DO later\n"),
        "a stub": ("a.cpp", "throw 1;  // not implem" "ented\n"),
        "a machine's path": ("a.md", "see /wo" "rk/main\n"),
        "a home folder": ("a.md", "see /ho" "me/ann/x\n"),
        "a foreign header": ("a.cpp", "#include <cu" "da.h>\n"),
        "a nameless file": ("utils.h", "int x;\n"),
        "a long file": ("a.cpp", "int x;\n" * (LARGEST_LINES + 1)),
        "a pipe that grep leaves": ("a", "#!/usr/bin/env bash\nset -euo pipefail\nlist | grep -qx one || exit 1\n"),
        "one on the next line": ("a", "#!/bin/bash\nset -o pipefail\nlist |\n  grep -E -q one\n"),
        "one in a sourced file": ("a.sh", "list | grep --quiet one\n"),
        "a pipe that head leaves": ("a", "#!/bin/bash\nset -uo pipefail\nfirst=$(list | head -n 1)\n"),
        "a large file": ("a.bin", "x" * (LARGEST_BYTES + 1)),
    }
    clean = {
        "paths inside a project": ("clean.cpp", "// see docs/guide/work/x and ./root/y\nint x;\n"),
        "grep that is given its text": ("a", "#!/bin/bash\nset -o pipefail\ngrep -q one <<<\"$(list)\"; list | grep -c one; list || head\n"),
        "a pipe without pipefail": ("a", "#!/bin/sh\nset -eu\nlist | grep -q one\n"),
    }
    failures = 0
    cases = [(what, True, *file) for what, file in planted.items()] + [(what, False, *file) for what, file in clean.items()]
    for what, wrong, name, text in cases:
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / name).write_text(text)
            found = bool(check(pathlib.Path(folder))[0])
            if found != wrong:
                failures += 1
                print(f"not found: {what}" if wrong else f"refused although clean: {what}")
    print(f"text self-test: {len(cases) - failures} passed, {failures} failed")
    return failures


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test() else 0)
    found, longest = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]))
    for count, name in longest:
        print(f"note: {name} has {count} lines; is there a second noun in it?")
    print(*found, sep="\n", end="\n" if found else "")
    print(f"text: {len(found)} problems")
    sys.exit(1 if found else 0)

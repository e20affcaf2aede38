#!/usr/bin/env python3
"""Asks the scripts behind `./dev` for what does not exist: each answers with what does, and its list is what it takes.
Nothing is built.

usage: dev.py [ROOT] | dev.py --self-test
"""
import pathlib
import re
import shutil
import subprocess
import sys

from planted import all_are_found

HELPED = "demo build test check bench fuzz coverage generate format setup help".split()
ROUNDS = 5  # a pipe that is left early fails now and then


def ask(root, *words):
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def check(root):
    errors = []
    for script in ("tools/dev/bench", "tools/dev/fuzz"):
        code, listed = ask(root, script, "--list")
        names = listed.split()
        if code != 0 or not names or not all(re.fullmatch(r"\w+", name) for name in names):
            errors.append(f"{script} --list: exit {code}: {listed[:200]!r}")
            continue
        for _ in range(ROUNDS):
            code, answer = ask(root, script, "no_such_name")
            if code == 0 or "no_such_name" not in answer or answer.split("there are:")[-1].split() != names:
                errors.append(f"{script} no_such_name: exit {code}, without the list: {answer[:200]!r}")
                break
        # A name that is known gets past the names: it is refused for the word after it.
        for name in names if script.endswith("fuzz") else ():
            code, answer = ask(root, script, name, "no_such_name")
            if "'no_such_name'" not in answer:
                errors.append(f"{script} {name}: {answer[:200]!r}")
    code, answer = ask(root, "./dev", "no_such_word")
    if code != 2 or "'no_such_word'" not in answer or "usage:" not in answer:
        errors.append(f"./dev no_such_word: exit {code}: {answer[:200]!r}")
    for word in HELPED:
        code, answer = ask(root, "./dev", word, "--help")
        if code != 0 or not answer.startswith("usage: ./dev ") or len(answer.splitlines()) < 2 or "dev: " in answer:
            errors.append(f"./dev {word} --help: exit {code}: {answer[:200]!r}")
    known = (root / "dev").read_text().partition("case $word in")[2]
    for word in sorted(set(re.findall(r"^  (\w+) ", ask(root, "./dev", "help")[1], re.M))):
        if not re.search(rf"(^|\|) *{word} *[|)]", known, re.M):
            errors.append(f"./dev help names '{word}', which dev does not know")
    return errors


def self_test(root):
    planted = {
        "a script that takes any name": ("tools/dev/bench", "grep -qx \"$name\"", "true || grep -qx \"$name\""),
        "a list of something else": ("tools/dev/fuzz", "sed 's/_fuzz$//' <<<\"$targets\"\n", "echo json\n"),
        "a word that builds before it shows its help": ("dev", " | generate | format) help_of", " | generate) help_of"),
        "a word that only the help knows": ("dev", "  help              this text", "  haste             this text\n  help              this text"),
    }

    def plant(copy, change):
        shutil.copy(root / "dev", copy)
        for part in ("tools/dev", "tools/demo", "tests/bench"):
            shutil.copytree(root / part, copy / part)
        for part in ("src", "sim", "apps"):
            for source in (*(root / part).rglob("*_bench.cpp"), *(root / part).rglob("*_fuzz.cpp"), root / part):
                target = copy / source.relative_to(root)
                target.mkdir(parents=True, exist_ok=True) if source.is_dir() else (target.parent.mkdir(parents=True, exist_ok=True), target.touch())
        if change:
            name, before, after = change
            text = (copy / name).read_text()
            assert before in text, f"{name} no longer has {before!r}"
            (copy / name).write_text(text.replace(before, after, 1).replace("build release\n", "exit 0\n").replace("build fuzz $targets\n", "exit 0\n"))

    return all_are_found("dev", planted, plant, check)


if __name__ == "__main__":
    here = pathlib.Path(__file__).parents[2]
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test(here) else 0)
    found = check(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"dev: {len(found)} problems")
    sys.exit(1 if found else 0)

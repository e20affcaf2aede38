#!/usr/bin/env python3
"""Reads the documents: every relative link leads somewhere, every file of the tree that is named exists, and each step of
the stories in ARCHITECTURE.md names a file.

usage: docs.py [ROOT] | docs.py --self-test
"""
import pathlib
import re
import sys

from planted import all_are_found
from text import files_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:src|sim|apps|tests|tools|docs|cmake|deploy)/[\w./-]+)`")
MENTIONED = re.compile(r"\b(docs/[\w./-]+\.(?:md|1))\b")  # in code, messages and scripts


def anchors_of(text):
    """The heading anchors as the common Markdown viewers make them."""
    heads = re.findall(r"^#+\s+(.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def story_errors(text):
    """Sections `Life of …`: each numbered step names a file."""
    errors = []
    for title, body in re.findall(r"^## (Life of [^\n]*)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        steps = re.split(r"^\d+\. ", body, flags=re.M)[1:]
        if len(steps) < 3:
            errors.append(f"ARCHITECTURE.md: '{title}' tells fewer than three steps")
        for number, step in enumerate(steps, 1):
            if not NAMED.search(step):
                errors.append(f"ARCHITECTURE.md: step {number} of '{title}' names no file")
    return errors


def check(root):
    errors = []
    for name in files_of(root):
        path = root / name
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.suffix != ".md":
            if not name.startswith("tools/check/"):
                errors += [f"{name}: {doc} does not exist" for doc in set(MENTIONED.findall(text)) if not (root / doc).is_file()]
            continue
        for link in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.S)):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            there = path.parent / target if target else path
            if not there.exists():
                errors.append(f"{name}: link to {link}, which does not exist")
            elif anchor and there.suffix == ".md" and anchor not in anchors_of(there.read_text()):
                errors.append(f"{name}: link to {link}, which has no such heading")
        errors += [f"{name}: names {named}, which does not exist" for named in set(NAMED.findall(text)) if not (root / named).exists()]
    architecture = root / "ARCHITECTURE.md"
    if architecture.is_file():
        errors += story_errors(architecture.read_text())
    return errors


def self_test():
    story = "## Life of a launch\n1. `src/a.cpp` does\n2. `src/a.cpp` does\n3. `src/a.cpp` does\n"
    clean = {"src/a.cpp": "// see docs/x.md\n", "docs/x.md": "# One thing\n[there](../README.md)\n", "README.md": "[x](docs/x.md#one-thing) `src/a.cpp`\n",
             "ARCHITECTURE.md": story}
    planted = {
        "a dead link": ("README.md", "[x](docs/y.md)\n"),
        "a dead anchor": ("README.md", "[x](docs/x.md#two)\n"),
        "a dead path": ("README.md", "`src/b.cpp`\n"),
        "a dead document named in code": ("src/a.cpp", "// see docs/y.md\n"),
        "a step without a file": ("ARCHITECTURE.md", story + "4. it goes on\n"),
    }

    def plant(root, fault):
        for file, content in {**clean, **dict([fault or ("src/c.cpp", "")])}.items():
            (root / file).parent.mkdir(exist_ok=True)
            (root / file).write_text(content)

    return all_are_found("docs", planted, plant, check)


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test() else 0)
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"docs: {len(found)} problems")
    sys.exit(1 if found else 0)

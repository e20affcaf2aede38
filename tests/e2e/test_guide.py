"""The lines that README and guide tell people to type: each runs as written, on a simulated machine where `night` runs.

Only what stands for something of the reader's own is replaced: the training program, the terminal of `top`.
"""
import os
import re
import subprocess

import pytest

from conftest import BUILD, ROOT, until

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/guide").glob("*.md"))]
LINES = [(page.name, line.split("   #")[0].strip()) for page in PAGES for line in re.findall(r"^    (\S.*)$", page.read_text(), re.M)]
TYPED = sorted({(page, line) for page, line in LINES if re.search(r"(^|[ (])(tensor-fusion|\./dev) ", line)})


@pytest.mark.parametrize("page,line", [row for row in TYPED if "./dev" in row[1]], ids=lambda text: text)
def test_dev_knows_the_word(page, line):
    word = line.split()[1]
    listed = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True).stdout
    assert re.search(rf"^  {word}\b", listed, re.M), listed


@pytest.mark.parametrize("page,line", [row for row in TYPED if "./dev" not in row[1]], ids=lambda text: text)
def test_the_line_does_what_it_says(machine, page, line):
    folder = machine.folder / "typed"
    folder.mkdir()
    for name in ("train.py", "sweep.py"):
        (folder / name).write_text("print('trained')\n")
    (folder / "python").symlink_to("/usr/bin/python3")
    machine.hypervisor()
    machine.start(*machine.program("run", "--name", "night", "--vram", "1Gi", "--", "sleep", "60"))
    until("night runs", lambda: machine.shown("ps")["slices"])
    if "logs -f sweep" in line:
        machine.cli("run", "-d", "--name", "sweep", "--vram", "1Gi", "--", "echo", "swept")
    typed = line.replace("tensor-fusion top", "tensor-fusion top --once").replace("--name night", "--name other")
    typed = typed.replace("~/.cache/tensor-fusion/venv/bin/python tools/demo/train.py", "python train.py")
    shell = ["fish", "--no-config", "-c"] if "fish" in line else ["bash", "-c"]
    for program in (shell[0], *re.findall(r"\| (man)\b", line)):
        if subprocess.run(["sh", "-c", f"command -v {program}"], capture_output=True).returncode != 0:
            pytest.skip(f"there is no {program} here")
    done = subprocess.run([*shell, typed], cwd=folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env={**machine.environment, "PATH": f"{BUILD / 'bin'}:{folder}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tensor-fusion: " not in done.stderr, done.stderr
    if "-- " in line and "-d" not in line.split():
        assert done.stdout == "trained\n"


def test_there_is_something_to_type():
    assert len(TYPED) > 15

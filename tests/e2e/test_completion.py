"""What each shell offers after the completion script was read as the guide says."""
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess

import pytest

from conftest import Machine, until

# a line that is being typed, words that must be offered, a word that must not
OFFERS = [
    ("tensor-fusion de", ["devices"], "doctor"),
    ("tensor-fusion run --vr", ["--vram"], "--compute"),
    ("tensor-fusion run --qos h", ["high"], "low"),
    ("tensor-fusion -o json l", ["limit", "logs"], "kill"),
    ("tensor-fusion completion z", ["zsh"], "bash"),
    ("tensor-fusion help do", ["doctor"], "devices"),
    ("tensor-fusion kill ni", ["night"], "day"),
    ("tensor-fusion limit ", ["night"], "These"),
]


def offered_by_bash(machine, line, _):
    script = f'''source <(tensor-fusion completion bash)
COMP_WORDS=({line}); [[ "{line}" != *" " ]] || COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _tensor_fusion; printf '%s\\n' "${{COMPREPLY[@]}}"'''
    return subprocess.run(["bash", "-c", script], env=machine.environment, capture_output=True, text=True).stdout.split()


def offered_by_fish(machine, line, _):
    done = subprocess.run(["fish", "--no-config", "-c", f'tensor-fusion completion fish | source; complete -C "{line}"'],
                          env=machine.environment, capture_output=True, text=True)
    return [row.split("\t")[0] for row in done.stdout.splitlines()]


def offered_by_zsh(machine, line, wanted):
    """It completes in its line editor only, so it gets a terminal, where the only match is written out and several are listed."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**machine.environment, "TERM": "dumb", "PS1": "% "})
    seen = ""

    def shows(words):
        nonlocal seen
        if select.select([terminal], [], [], 0.05)[0]:
            seen += os.read(terminal, 65536).decode(errors="replace")
        return set(words) <= set(seen.split())
    try:
        os.write(terminal, b"autoload -U compinit; compinit -u -D; source <(tensor-fusion completion zsh); echo re''ady\n")
        until("zsh is ready", lambda: shows(["ready"]))
        seen = ""
        os.write(terminal, line.encode() + (b"\t" if len(wanted) == 1 else b"\t\t"))  # a second one asks for the word after
        until(f"{wanted} are offered", lambda: shows(wanted))
        return seen.split()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


@pytest.fixture(scope="module")
def shared():
    folder = pathlib.Path("/dev/shm") / f"e2e-completion-{os.getpid()}"
    folder.mkdir()
    made = Machine(folder)
    made.environment["PATH"] = f"{pathlib.Path(made.program()[0]).parent}:{os.environ['PATH']}"
    made.hypervisor()
    made.start(*made.program("run", "--name", "night", "--", "sleep", "100"))
    made.outside("wait")  # `ps` has more to say where one uses a GPU without a slice
    until("both are seen", lambda: (seen := made.shown("ps"))["slices"] and seen["unlimited_processes"])
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("line,wanted,unwanted", OFFERS, ids=[row[0][14:] for row in OFFERS])
@pytest.mark.parametrize("shell,offered", [("bash", offered_by_bash), ("fish", offered_by_fish), ("zsh", offered_by_zsh)],
                         ids=["bash", "fish", "zsh"])
def test_offers(shared, shell, offered, line, wanted, unwanted):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    offers = offered(shared, line, wanted)
    assert set(wanted) <= set(offers), offers
    assert unwanted not in offers

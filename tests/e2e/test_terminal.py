"""What is drawn in a terminal, and whose keys and signals are whose."""
import os
import signal
import subprocess
import time

from conftest import until
from slices import sleeper
from terminal import Terminal


def test_top_draws_in_a_terminal_and_gives_it_back(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    top = Terminal(machine, "top", "--interval", "0.2")
    top.draws(b"night", b"H100")
    top.press(b"s")
    top.draws(b"compute used")
    top.press(b"jkp")
    top.draws(b"PAUSED")
    top.press(b"q")
    assert top.end() == 0
    assert b"\x1b[?1049l" in top.seen, "the screen that was there before is shown again"


def test_top_follows_the_size_of_its_terminal(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    top = Terminal(machine, "top", "--interval", "0.2")
    top.draws(b"night", b"H100", b"[....................]")
    top.resize(40, 10)
    top.draws(b"GPU 0  time   0%  memory")
    top.resize(80, 24)
    top.draws(b"H100", b"[......]")
    top.press(b"q")
    assert top.end() == 0


def test_top_is_ended_by_a_signal_as_any_program(machine):
    machine.hypervisor()
    top = Terminal(machine, "top", "--interval", "30")
    top.draws(b"H100")
    top.press(b"\x03")
    assert top.end() == -signal.SIGINT, "130 to a shell"
    assert b"\x1b[?1049l" in top.seen, "the screen that was there before is shown again"


def test_top_goes_on_when_the_hypervisor_comes_back(machine):
    first = machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    top = Terminal(machine, "top", "--interval", "0.2")
    top.draws(b"night")
    first.kill()
    top.draws(b"when one runs again")
    machine.hypervisor()
    top.draws(b"night")
    top.press(b"q")
    assert top.end() == 0


def test_top_hears_keys_while_the_hypervisor_is_stuck(machine):
    hypervisor = machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    top = Terminal(machine, "top", "--interval", "0.2")
    top.draws(b"night")
    os.kill(hypervisor.pid, signal.SIGSTOP)
    top.draws(b"has not answered for")
    top.press(b"p")
    until("the key is heard, long before the answer is given up", lambda: b"PAUSED" in top.read(), 6)
    top.press(b"q")
    begin = time.monotonic()
    assert top.end() == 0 and time.monotonic() - begin < 6
    os.kill(hypervisor.pid, signal.SIGCONT)


def test_a_program_in_a_slice_has_the_terminal_and_its_signals(machine):
    machine.hypervisor()
    program = 'trap "stty size" WINCH; tty >/dev/null && echo re""ady; while read -r line; do echo "got $line"; done; echo en""ded'
    shell = Terminal(machine, program=["bash", "--norc", "--noprofile", "-i"], columns=100, lines=30)
    shell.draws(b"% ")
    shell.press((" ".join(machine.program("run", "--vram", "1Gi", "--")) + f" bash -c '{program}'\n").encode())
    shell.draws(b"ready")
    shell.press(b"hello\n")
    shell.draws(b"got hello")
    shell.resize(90, 20)
    shell.press(b"\n")
    shell.draws(b"20 90")
    shell.press(b"\x1a")
    shell.draws(b"Stopped", b"% ")
    shell.press(b"fg\n")
    shell.press(b"again\n")
    shell.draws(b"got again")
    shell.press(b"\x04")
    shell.draws(b"ended", b"% ")
    shell.press(b"exit 7\n")
    assert shell.end() == 7


def test_a_program_ended_by_a_signal_shows_128_plus_it_to_a_shell(machine):
    machine.hypervisor()
    for name, number in (("INT", 2), ("TERM", 15), ("KILL", 9), ("SEGV", 11)):
        command = " ".join(machine.program("run", "--vram", "1Gi", "--")) + f" sh -c 'kill -{name} $$'"
        assert subprocess.run(["bash", "-c", f"{command}; exit $?"], env=machine.environment, capture_output=True).returncode == 128 + number


def test_top_without_a_terminal_says_what_to_use(machine):
    machine.hypervisor()
    _, error = machine.cli("top", code=2)
    assert "--once" in error

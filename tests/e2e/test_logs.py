"""The output of detached programs: kept, followed, cut, and found again."""
import os
import subprocess

import pytest

from conftest import MIB, PATIENCE_S, until
from slices import another_user, slices
from terminal import Terminal


def test_logs_keep_what_a_detached_program_prints(machine):
    machine.hypervisor()
    assert machine.cli("run", "-d", "--name", "night", "--", "sh", "-c", "echo one; echo two >&2; sleep 60")[0] == "night\n"
    until("both lines are there", lambda: machine.cli("logs", "night")[0] == "one\ntwo\n")
    assert machine.cli("logs", "night", "--tail", "1")[0] == "two\n"
    follower = subprocess.Popen(machine.program("logs", "-f", "night"), env=machine.environment, stdout=subprocess.PIPE, text=True)
    machine.cli("kill", "night")
    assert follower.communicate(timeout=PATIENCE_S)[0] == "one\ntwo\n", "following ends with the slice"
    assert machine.cli("logs", "night")[0] == "one\ntwo\n", "and the output outlives it"


def test_logs_say_why_nothing_is_kept_of_a_program_that_was_not_detached(machine):
    hypervisor = machine.hypervisor()
    machine.cli("run", "--name", "night", "--", "echo", "here")
    said = "the slice `night` has ended, and no output of it is kept: only `run --detach` keeps it"
    assert said in machine.cli("logs", "night", code=12)[1]
    hypervisor.kill()
    assert said in machine.cli("logs", "night", code=12)[1]
    assert "`day`" in machine.cli("logs", "day", code=12)[1]


@pytest.mark.parametrize("program,said", [("exit 3", "exit code was 3"), ("exit 0", "exit code was 0"), ("kill -9 $$", "ended by SIGKILL")])
def test_events_say_how_a_detached_program_ended(machine, program, said):
    machine.hypervisor()
    machine.cli("run", "-d", "--name", "night", "--", "sh", "-c", program)
    ended, = until("it has ended", lambda: [e for e in machine.shown("events", "-s", "night")["events"] if e["kind"] == "ended"])
    if said not in ended["message"]:
        assert ended["message"] == "its last process has ended" and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15)
        pytest.skip("its parent was faster, and this kernel remembers no exit status")


def test_logs_keep_the_newest_part_of_an_endless_output(machine):
    """The state directory is a file system in memory, for all users of the machine."""
    machine.hypervisor()
    machine.cli("run", "-d", "--name", "night", "--", "sh", "-c", "seq 5000000; echo done; exec sleep 600")
    log, = (machine.state / "logs").glob("*.log")
    until("it has printed", lambda: b"done" in log.read_bytes()[-10:])
    until("its front is cut", lambda: log.stat().st_blocks * 512 < 10 * MIB)
    lines = machine.cli("logs", "night")[0].splitlines()
    assert lines[-1] == "done" and lines[:-1] == [str(5000001 - n) for n in range(len(lines) - 1, 0, -1)]
    assert 7 * MIB < len("\n".join(lines)) < 10 * MIB
    assert machine.cli("logs", "night", "--tail", "2")[0] == "5000000\ndone\n"
    machine.cli("kill", "night")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file another user's")
def test_logs_of_another_user_do_nothing_to_a_terminal(machine):
    machine.hypervisor()
    machine.cli("run", "-d", "--name", "night", "--", "printf", r"one\033[2J\ntwo\n")
    until("it has printed", lambda: "two" in machine.cli("logs", "night")[0])
    assert machine.cli("logs", "night")[0] == "one\x1b[2J\ntwo\n", "a file gets it as it is"

    def shown():
        terminal = Terminal(machine, "logs", "night")
        assert terminal.end() == 0
        return terminal.seen

    assert shown() == b"one\x1b[2J\r\ntwo\r\n", "one's own may have colours"
    for log in (machine.state / "logs").glob("*.log"):
        os.chown(log, 65534, 65534)
    assert shown() == b"one?[2J\r\ntwo\r\n"


def test_logs_outlive_the_hypervisor_and_are_those_of_the_last_of_a_name(machine):
    hypervisor = machine.hypervisor()
    for word in ("first", "second"):
        machine.cli("run", "-d", "--name", "night", "--", "echo", word)
        until("it has ended", lambda: not slices(machine))
    assert machine.cli("logs", "night")[0] == "second\n"
    hypervisor.kill()
    assert machine.cli("logs", "night")[0] == "second\n"
    machine.hypervisor()
    assert machine.cli("logs", "night")[0] == "second\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machines_hypervisor_keeps_output_too(machine, folder):
    as_nobody = another_user(machine, folder)
    done = subprocess.run([*as_nobody, *machine.program("run", "-d", "--name", "theirs", "--", "sh", "-c", "id -u")],
                          env=machine.environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "theirs\n"), done.stderr
    until("it has printed", lambda: machine.cli("logs", "theirs")[0] == "65534\n")

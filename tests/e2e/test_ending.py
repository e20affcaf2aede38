"""What a slice had is free as soon as it is said that it has ended, or its last process was seen to."""
import os
import select
import signal
import sys

import pytest

from conftest import MIB, PATIENCE_S, TENANT, until
from slices import slices

GPU_PROGRAM = f"{sys.executable} {TENANT} alloc:{64 * MIB} wait <&3"
PROGRAMS = {
    "a GPU program": ([sys.executable, TENANT, f"alloc:{64 * MIB}", "wait"], 1),
    "GPU programs below a shell": (["sh", "-c", f"exec 3<&0; {GPU_PROGRAM} & {GPU_PROGRAM} & sleep 60 & wait"], 2),
    "one that left its first process behind": (["sh", "-c", "setsid sleep 60 & exit 0"], 0),
}
ALL = ("--name", "night", "--vram", "4Gi", "--compute", "100%")


def left_behind(machine):
    """A slice of which a process lives that uses no GPU and is not its first; returns its pid."""
    until("the last one is away", lambda: not slices(machine))
    process = machine.start(*machine.program("run", *ALL, "--", "sh", "-c", "setsid sleep 60 >/dev/null & echo $!"))
    pid = process.said()
    until("only that one is left", lambda: [s["state"] for s in slices(machine)] == ["detached"])
    return pid


def end(pid):
    process = os.pidfd_open(pid)
    signal.pidfd_send_signal(process, signal.SIGKILL)
    assert select.select([process], [], [], PATIENCE_S)[0]
    os.close(process)


@pytest.mark.parametrize("number", ["TERM", "KILL"])
@pytest.mark.parametrize("what", PROGRAMS)
def test_what_kill_has_ended_is_free_when_it_answers(machine, what, number):
    machine.hypervisor()
    program, on_gpu = PROGRAMS[what]
    for _ in range(3):
        machine.start(*machine.program("run", *ALL, "--", *program))
        state = "running" if on_gpu else "detached"
        until("it is at work", lambda: [(s["state"], len(s["processes"])) for s in slices(machine)] == [(state, on_gpu)])
        assert machine.cli("kill", "night", "-s", number) == ("", "")
        assert machine.cli("ps", "--names")[0] == ""
        machine.cli("kill", "night", code=12)
        machine.cli("run", *ALL, "--", "true")
        until("that is away, too", lambda: not slices(machine))  # a slice that is ending is shown as one that is left


def test_a_name_and_a_share_are_free_as_soon_as_all_of_a_slice_have_ended(machine):
    machine.hypervisor()
    for wait in ([], ["--wait"]):
        end(left_behind(machine))
        assert machine.cli("run", *ALL, *wait, "--", "true") == ("", "")
        end(left_behind(machine))
        assert machine.cli("run", *wait, "--compute", "100%", "--gpu", "0", "--", "true") == ("", ""), "under another name"


def test_a_slice_of_which_somebody_lives_is_still_refused(machine):
    machine.hypervisor()
    left_behind(machine)
    assert "runs already" in machine.cli("run", *ALL, "--", "true", code=113)[1]


def test_kill_names_who_came_after_the_signal(machine):
    machine.hypervisor()
    heir = machine.start(*machine.program("run", *ALL, "--", "sh", "-c",
                                          "trap 'trap \"\" TERM; setsid sleep 60 >/dev/null & echo $!; exit 0' TERM; echo 0; while :; do sleep 0.1; done"))
    heir.said()
    _, error = machine.cli("kill", "night", code=1)
    assert f"still runs after 2 s: {heir.said()};" in error, error
    assert machine.cli("kill", "night", "-s", "KILL") == ("", "")

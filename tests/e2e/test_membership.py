"""Whose process is it: programs that leave their parents, and those that would rather be nobody's."""
import sys

from conftest import until

# Leaves everything behind as a daemon does, then goes on in a shell's place.
DAEMON = """
import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execvp("sleep", ["sleep", "1000"])
"""

# Each forks the next and exits.
CHAIN = """
import os, time
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.fork(): os._exit(0)
"""


def slices(machine):
    return {s["name"]: s["state"] for s in machine.shown("ps")["slices"]}


def run(machine, name, program):
    """Until the first process has ended; what it leaves behind goes on."""
    command = machine.program("run", "--name", name, "--vram", "1Gi", "--compute", "1%", "--", sys.executable, "-c", program)
    assert machine.start(*command).child.wait(30) == 0


def test_no_program_that_becomes_a_daemon_loses_its_slice(machine):
    machine.hypervisor()
    names = [f"d{i}" for i in range(20)]
    for name in names:
        run(machine, name, DAEMON)
    assert slices(machine) == dict.fromkeys(names, "detached")
    assert "its last process has ended" not in machine.cli("events")[0]
    machine.cli("kill", *names, "--signal", "KILL")
    until("their slices have ended with them", lambda: not slices(machine))


def test_a_killed_slice_leaves_nobody_though_each_process_forks_the_next_and_exits(machine):
    machine.hypervisor()
    run(machine, "chain", CHAIN)
    assert slices(machine) == {"chain": "detached"}
    machine.cli("kill", "chain", "--signal", "KILL", code=None)
    until("nobody is left", lambda: not slices(machine), 10)

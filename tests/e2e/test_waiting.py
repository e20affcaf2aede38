"""`run` that waits: in line for a slice, and for a hypervisor."""
import os
import select
import signal
import subprocess

import pytest

from conftest import PATIENCE_S, until
from slices import another_user, sleeper, slices


def test_wait_starts_the_program_when_the_slice_fits(machine):
    machine.hypervisor()
    first = sleeper(machine, "--compute", "80%", "--gpu", "0")
    waiting = machine.start(*machine.program("run", "--wait", "--compute", "50%", "--gpu", "0", "--", "sh", "-c", "echo '\"started\"'"))
    assert not select.select([waiting.child.stdout], [], [], 0.5)[0], "it must not start beside the first"
    first.kill()
    assert waiting.said() == "started"
    assert waiting.end() == 0


def test_a_waiting_run_that_is_interrupted_leaves_the_line(machine):
    machine.hypervisor()
    first = sleeper(machine, "--compute", "80%", "--gpu", "0")
    waiting = machine.start(*machine.program("run", "--wait", "--compute", "50%", "--gpu", "0", "--name", "late", "--", "sleep", "60"))
    machine.until_logged("waiting in line")
    waiting.kill(signal.SIGINT)
    first.kill()
    until("the first is gone", lambda: not slices(machine))
    machine.cli("run", "--compute", "80%", "--gpu", "0", "--", "true")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_run_of_another_user_waits_while_the_machines_hypervisor_is_replaced(machine, folder):
    as_nobody = another_user(machine, folder)
    machine.processes[0].kill()
    waiting = machine.start(*as_nobody, *machine.program("run", "--vram", "1Gi", "--", "sh", "-c", "exit 7"))
    machine.until_logged("waiting for a hypervisor")
    assert waiting.child.poll() is None
    machine.hypervisor()
    assert waiting.child.wait(PATIENCE_S) == 7
    machine.processes[-1].kill()
    said = subprocess.run([*as_nobody, *machine.program("devices")], env=machine.environment, capture_output=True, text=True)
    assert said.returncode == 18 and "only the directory's owner may start one" in said.stderr


def test_who_waits_is_told_for_what_and_again_when_that_changes(machine):
    machine.hypervisor()
    first = sleeper(machine, "--compute", "80%", "--vram", "1Gi", "--gpu", "0", "--name", "first")
    second = sleeper(machine, "--compute", "15%", "--vram", "1Gi", "--gpu", "0", "--name", "second")
    waiting = machine.start(*machine.program("run", "--wait", "--compute", "90%", "--vram", "1Gi", "--gpu", "0", "--", "sh", "-c", "echo '\"started\"'"))
    machine.until_logged("GPU 0 (NVIDIA H100 80GB HBM3): 90% of compute asked, 5% free; held by ")
    machine.until_logged("second (15%)")
    first.kill()
    machine.until_logged("GPU 0 (NVIDIA H100 80GB HBM3): 90% of compute asked, 85% free; held by second (15%)\n")
    second.kill()
    assert waiting.said() == "started"
    said = (machine.folder / "log").read_text()
    assert said.count("first (80%)") == 1 and said.count("waiting in line: ") == 2, said


def test_who_waits_is_not_told_what_has_changed_for_a_moment_only_and_reads_all_that_is_missing(machine):
    machine.hypervisor()
    first = sleeper(machine, "--compute", "80%", "--vram", "70Gi", "--gpu", "0", "--name", "first")
    waiting = machine.start(*machine.program("run", "--wait", "--compute", "50%", "--vram", "20Gi", "--gpu", "0", "--", "sh", "-c", "echo '\"started\"'"))
    machine.until_logged("20Gi of memory asked, 9.65Gi of 79.6Gi free; held by first (70Gi); and 50% of compute asked, 20% free; held by first (80%)\n")
    for _ in range(3):
        machine.cli("run", "--compute", "10%", "--vram", "1Gi", "--gpu", "0", "--name", "short", "--", "true")
    lasting = sleeper(machine, "--compute", "5%", "--vram", "1Gi", "--gpu", "0", "--name", "lasting")
    machine.until_logged("lasting (5%)")
    said = (machine.folder / "log").read_text()
    assert said.count("waiting in line: ") == 2 and "short (" not in said, said
    lasting.kill()
    first.kill()
    assert waiting.said() == "started"


def test_a_slice_that_seems_to_be_over_and_in_which_somebody_hides_keeps_nobody_from_an_answer(machine):
    machine.hypervisor()
    hides = "setsid unshare -Urm --root=/usr /bin/sleep 600 >/dev/null & echo $!"
    first = machine.start(*machine.program("run", "--compute", "80%", "--gpu", "0", "--name", "first", "--", "sh", "-c", hides))
    pid = first.said()
    until("only that one is left", lambda: [s["state"] for s in slices(machine)] in (["detached"], []))
    if not slices(machine):
        pytest.skip("nobody can hide so here")
    refused = machine.program("run", "--compute", "50%", "--gpu", "0", "--", "true")[1:]
    until("it is refused at once", lambda: "has not answered" not in machine.cli(*refused, code=110)[1])
    waiting = machine.start(*machine.program("run", "--wait", "--compute", "50%", "--gpu", "0", "--", "sh", "-c", "echo '\"started\"'"))
    machine.until_logged("held by first (80%)")
    os.kill(pid, signal.SIGKILL)
    assert waiting.said() == "started"

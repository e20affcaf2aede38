"""Slices of a machine as its tests see and make them."""
import json
import subprocess

import pytest

from conftest import BUILD, until


def slices(machine):
    return machine.shown("ps")["slices"]


def account(machine):
    """What its cards themselves say of their use, one after the other."""
    said = subprocess.run([str(BUILD / "bin/simulated-gpu"), "account"], env=machine.environment, capture_output=True, check=True)
    return json.loads(said.stdout)["engines"]


def most_held(machine):
    """The high-water mark of the memory of its cards."""
    return max(engine["memory"]["peak_bytes"] for engine in account(machine))


def sleeper(machine, *options, program=("sleep", "60")):
    """A program in a slice that does not touch the GPU."""
    def running():  # one that is only placed goes with its hypervisor
        return sum(s["state"] == "running" for s in slices(machine))
    known = running()
    process = machine.start(*machine.program("run", *options, "--", *program))
    until("the slice runs", lambda: running() > known or process.child.poll() is not None)
    assert process.child.poll() is None
    return process


def another_user(machine, folder):
    """What runs a command as another user beside a hypervisor of ours."""
    folder.chmod(0o755)
    machine.hypervisor()
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*as_nobody, *machine.program("version")], capture_output=True).returncode != 0:
        pytest.skip("another user cannot reach the build folder")
    return as_nobody

"""Another version of the program under slices that run: newer, and back again. Slices are the hypervisor's to find, not to own."""
import json
import shutil
import socket
import subprocess
import sys

import pytest

from conftest import BUILD, GIB, MIB, PATIENCE_S, TENANT, until
from slices import slices

NEWER = b"0.1.9"  # as long as ours


class Version:
    """A copy of what is installed, with another version in it."""

    def __init__(self, machine, name, version):
        self.machine, self.version = machine, version.decode()
        self.program = machine.folder / name / "bin/tensor-fusion"
        self.program.parent.mkdir(parents=True)
        shutil.copytree(BUILD / "lib", machine.folder / name / "lib")
        ours = subprocess.run([str(BUILD / "bin/tensor-fusion"), "version"], capture_output=True, check=True).stdout.split()[1]
        assert len(ours) == len(version)
        bytes_ = (BUILD / "bin/tensor-fusion").read_bytes()
        assert bytes_.count(b"\0" + ours + b"\0") == 1, "the one constant"
        self.program.write_bytes(bytes_.replace(b"\0" + ours + b"\0", b"\0" + version + b"\0"))
        self.program.chmod(0o755)
        assert self.cli("version") == f"tensor-fusion {self.version}\n"

    def cli(self, *arguments):
        done = subprocess.run([str(self.program), *(str(a) for a in arguments)], env=self.machine.environment, text=True,
                              capture_output=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def hypervisor(self):
        process = self.machine.start(self.program, "hypervisor", "--foreground")
        until("it answers", lambda: process.child.poll() is not None or self.machine.answers())
        assert process.child.poll() is None
        assert self.asked()["version"] == self.version
        return process

    def asked(self):
        """What the hypervisor that answers says that it is."""
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(PATIENCE_S)
            door.connect(str(self.machine.state / "hypervisor.sock"))
            door.sendall(b'{"op": "version"}\n')
            return json.loads(door.makefile().readline())


def told(machine, *names):
    """What is to outlive a change of the hypervisor."""
    kept = {s["name"]: (s["id"], s["pid"], s["state"], s["devices"][0]["uuid"], s["devices"][0]["memory_limit_bytes"],
                        s["devices"][0]["compute_limit_percent"]) for s in slices(machine)}
    return {name: kept.get(name) for name in names}


@pytest.mark.parametrize("end", ["--stop", "kill -9"])
def test_a_newer_version_takes_over_running_slices_and_the_older_takes_them_back(machine, end):
    ours = subprocess.run([str(BUILD / "bin/tensor-fusion"), "version"], capture_output=True, check=True).stdout.split()[1]
    older, newer = Version(machine, "older", ours), Version(machine, "newer", NEWER)

    def leave(hypervisor, version):
        if end == "--stop":
            version.cli("hypervisor", "--stop")
            assert hypervisor.child.wait(PATIENCE_S) == 0
        else:
            hypervisor.kill()
        until("nobody answers", lambda: not machine.answers())

    first = older.hypervisor()
    busy = machine.start(older.program, "run", "--vram", "2Gi", "--compute", "40%", "--name", "busy", "--", sys.executable,
                         TENANT, "occupy:500000", "busy")
    fills = machine.start(older.program, "run", "--vram", "1Gi", "--name", "fills", "--", sys.executable, TENANT, "wait", f"fill:{16 * MIB}")
    for process, words in ((busy, 3), (fills, 2)):
        for _ in range(words):
            assert process.said().get("result", "CUDA_SUCCESS") == "CUDA_SUCCESS"
    before = told(machine, "busy", "fills")
    assert None not in before.values()

    leave(first, older)
    second = newer.hypervisor()
    until("all are there again", lambda: told(machine, "busy", "fills") == before)
    newer.cli("limit", "busy", "--vram", "3Gi", "--compute", "30%")
    older.cli("limit", "fills", "--vram", "1536Mi")  # a command of the older version is understood, too
    changed = told(machine, "busy", "fills")
    assert changed["busy"][4:] == (3 * GIB, 30) and changed["fills"][4] == 1536 * MIB
    assert newer.cli("run", "--vram", "1Gi", "--", "echo", "new") == "new\n"
    assert older.cli("run", "--vram", "1Gi", "--", "echo", "old") == "old\n"
    late = machine.start(newer.program, "run", "--vram", "4Gi", "--name", "late", "--", sys.executable, TENANT, "wait", f"fill:{16 * MIB}")
    late.said(), late.said()
    everybody = told(machine, "busy", "fills", "late")

    leave(second, newer)
    older.hypervisor()
    until("they are all there again", lambda: told(machine, "busy", "fills", "late") == everybody)
    assert older.cli("run", "--vram", "1Gi", "--", "echo", "again") == "again\n"
    for process, limit in ((fills, 1536 * MIB), (late, 4 * GIB)):
        process.child.stdin.close()
        filled = process.said()
        assert filled["result"] == "CUDA_ERROR_OUT_OF_MEMORY" and limit - GIB < filled["bytes"] <= limit
        assert process.child.wait(PATIENCE_S) == 0
    busy.child.stdin.write("end\n")
    busy.child.stdin.close()
    assert busy.said()["result"] == "CUDA_SUCCESS", "it worked all the time"
    assert busy.child.wait(PATIENCE_S) == 0
    until("all are over", lambda: not slices(machine))

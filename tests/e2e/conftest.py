"""A simulated machine of its own for every test, with the program `tensor-fusion` on it, and nothing left behind.

The build folder comes from TF_BUILD (build/release unless set). Processes are ended by the ids this file started.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TF_BUILD", ROOT / "build/release")).resolve()
TENANT = pathlib.Path(__file__).with_name("tenant.py")
PATIENCE_S = 90  # the longest any state is awaited; generous, because machines can be busy

GIB = 1 << 30
MIB = 1 << 20


def until(what, condition, seconds=PATIENCE_S):
    """Awaits a state; returns what the condition returned."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.005)
    return value


class Process:
    """A program on the machine; `said()` reads its next line of JSON."""

    def __init__(self, arguments, environment, log):
        self.child = subprocess.Popen([str(a) for a in arguments], env=environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)

    @property
    def pid(self):
        return self.child.pid

    def said(self):
        line = self.child.stdout.readline()
        assert line, f"the program ended (exit {self.child.wait()}) without a word"
        return json.loads(line)

    def end(self):
        """Lets it go on to its end; returns its exit status."""
        self.child.stdin.close()
        return self.child.wait(PATIENCE_S)

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)
        return self.child.wait(PATIENCE_S)


class Machine:
    def __init__(self, folder, description="2xh100"):
        self.folder = pathlib.Path(folder)
        self.state = self.folder / "state"
        self.processes = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TENSOR_FUSION_")},
            "TENSOR_FUSION_SIM": description, "TENSOR_FUSION_SIM_DIR": str(self.folder / "sim"),
            "TENSOR_FUSION_STATE": str(self.state),
            "LD_LIBRARY_PATH": str(BUILD / "sim"), "TENANT_LIBCUDA": str(BUILD / "sim/libcuda.so.1"), "NO_COLOR": "1",
        }
        self.log = open(self.folder / "log", "w+")

    def program(self, *arguments):
        return [str(BUILD / "bin/tensor-fusion"), *(str(a) for a in arguments)]

    def cli(self, *arguments, code=0, environment=None):
        """Runs `tensor-fusion ARGUMENTS` to its end; returns (standard output, standard error)."""
        done = subprocess.run(self.program(*arguments), env={**self.environment, **(environment or {})}, capture_output=True,
                              text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
        if code is not None:
            assert done.returncode == code, f"exit {done.returncode}, not {code}: {done.stdout}{done.stderr}"
        return done.stdout, done.stderr

    def shown(self, *arguments):
        return json.loads(self.cli(*arguments, "-o", "json")[0])

    def start(self, *arguments, environment=None):
        process = Process(arguments, {**self.environment, **(environment or {})}, self.log)
        self.processes.append(process)
        return process

    def hypervisor(self):
        process = self.start(*self.program("hypervisor", "--foreground"))
        until("the hypervisor answers", lambda: process.child.poll() is not None or self.answers())
        assert process.child.poll() is None, "the hypervisor ended at once"
        return process

    def answers(self):
        # Not by a command: one that shows slices would start a hypervisor of its own where slices have outlived theirs.
        with socket.socket(socket.AF_UNIX) as door:
            return door.connect_ex(str(self.state / "hypervisor.sock")) == 0

    def until_logged(self, text):
        """Awaits it among what the programs of this machine wrote to standard error."""
        until(f"{text!r} is said", lambda: text in (self.folder / "log").read_text())

    def tenant(self, words, *options):
        """A program in a slice: `words` for tenant.py, `options` for `tensor-fusion run`."""
        return self.start(*self.program("run", *options, "--", sys.executable, TENANT, *words))

    def outside(self, *words):
        """A program without a slice, which sees the machine as it is."""
        return self.start(sys.executable, TENANT, *words)

    def free_bytes(self):
        """Free memory of the first card by a fresh program without a slice."""
        process = self.outside("info")
        process.said()
        free = process.said()["free"]
        process.end()
        return free

    def close(self):
        for process in self.processes:
            if process.child.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its own session: only what it started
                process.child.wait()
            process.child.stdout.close()
        leftover = self.state / "hypervisor.lock"
        if leftover.is_file() and (pid := leftover.read_text().strip()).isdigit():  # one that `run` started
            try:
                if str(self.state).encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
        self.log.close()


@pytest.fixture
def folder():
    own = tempfile.mkdtemp(prefix="e2e-", dir="/dev/shm")
    yield pathlib.Path(own)
    shutil.rmtree(own, ignore_errors=True)


@pytest.fixture
def machine(folder, request):
    made = Machine(folder, getattr(request, "param", "2xh100"))
    yield made
    made.close()
    sys.stderr.write((folder / "log").read_text())  # pytest shows it when the test failed


def pytest_sessionstart():
    missing = [str(file) for file in (BUILD / "bin/tensor-fusion", BUILD / "sim/libcuda.so.1",
                                      BUILD / "lib/libtensor_fusion_limiter.so") if not file.exists()]
    if missing:
        pytest.exit(f"missing: {', '.join(missing)}; build first", returncode=1)

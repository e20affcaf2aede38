"""The demonstration ends in order when it is told to, and its scripts refuse unknown words like the others."""
import os
import pathlib
import runpy
import signal
import subprocess

import pytest

from conftest import BUILD, until

ROOT = pathlib.Path(__file__).resolve().parents[2]


def folders():
    return set(pathlib.Path("/dev/shm").glob("tensor-fusion-demo-*"))


def with_state(folder):
    """Processes that know the folder by their environment: the hypervisor among them."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes() and (process / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_demonstration_leaves_nothing(number):
    before = folders()
    demo = subprocess.Popen([ROOT / "tools/demo/run", "--simulated"], env={**os.environ, "TENSOR_FUSION_BUILD": str(BUILD)},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def mine_of():
        return [at for at in folders() - before if (at / "state/hypervisor.sock").exists() and demo.pid in parents(with_state(at))]

    found = until("its hypervisor serves", lambda: mine_of() or demo.poll() is not None)
    if demo.poll() == 2:
        pytest.skip("the demonstration's programs are not installed: " + demo.stderr.read())
    assert demo.poll() is None, "it ended by itself: " + demo.stderr.read()
    mine, = found
    demo.send_signal(number)
    _, error = demo.communicate(timeout=60)
    assert demo.returncode == 128 + number, error
    assert "Traceback" not in error and "interrupted" in error
    assert not mine.exists()
    until("nothing of it runs", lambda: not with_state(mine))


def test_an_idle_card_is_laid_to_a_busy_host_only_where_programs_waited_for_a_processor():
    why = runpy.run_path(str(ROOT / "tools/demo/run"))["idle_sentence"]
    assert why(1.9, 20, 30) is None
    assert why(10, 20, 1.5) == "the card was idle 10.0 % of the time because this host is busy; run it again when it has less to do"
    assert "not because this host is busy" in why(10, 20, 0.2)


def parents(pids):
    for pid in pids:
        try:
            yield int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue


def test_an_unknown_benchmark_ends_with_2():
    done = subprocess.run(["tools/dev/bench", "nosuch"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "there is no benchmark 'nosuch'" in done.stderr

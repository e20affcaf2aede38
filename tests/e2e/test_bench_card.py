"""`bench card` measures the card that is here, by `tensor-fusion run`, and leaves nothing behind."""
import re
import subprocess
import time

from conftest import BUILD

BENCH = BUILD / "bench/card_bench"


def measure(machine, *options):
    return subprocess.run([BENCH, *options], env=machine.environment, capture_output=True, text=True, timeout=120)


def test_it_measures_every_part_and_holds_memory_to_the_byte(machine):
    done = measure(machine, "--seconds", "1")  # how exact shares are on a busy machine is not asked here
    assert "did not run" not in done.stdout, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("bench card: caps_mean=") and " overshoot_bytes=0 " in last, done.stdout
    figures = {key: float(value) for key, value in re.findall(r"(\w+)=(\S+)", last)}
    assert 0 < figures["launch_plain_ns"] and 0 < figures["alloc_slice_ns"] and 0 <= figures["caps_mean"] < 30, last
    assert "H100" in done.stdout.splitlines()[0]
    assert machine.shown("ps")["slices"] == []


def test_kernels_that_count_rounds_run_as_well(machine):
    worker = subprocess.run([BENCH, "--worker"], env=machine.environment, capture_output=True, text=True, timeout=60,
                            input=f"spin 1 2000 {time.monotonic_ns()} 1\n")
    assert worker.returncode == 0 and int(worker.stdout.splitlines()[1]) > 0, worker.stdout + worker.stderr


def test_it_measures_nothing_beside_a_slice(machine):
    tenant = machine.tenant(["wait"], "--name", "busy", "--vram", "1Gi")
    tenant.said()
    done = measure(machine)
    assert done.returncode == 1 and "the slice `busy` is at work" in done.stderr, done.stderr
    tenant.end()


def test_without_a_card_it_says_so(machine):
    del machine.environment["LD_LIBRARY_PATH"]
    done = measure(machine)
    assert done.returncode == 1 and "no program can use a GPU here" in done.stderr and "doctor" in done.stderr, done.stderr

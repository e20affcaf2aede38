"""A slice's memory limit before anybody knows what a context costs there, by the device's own high-water mark."""
import json
import subprocess
import sys
import textwrap

import pytest

from conftest import BUILD, GIB

COLD = textwrap.dedent("""
    import ctypes as C, os, random, sys, time
    end = time.time() + 1.5
    for child in range(int(sys.argv[1])):
        if os.fork() == 0:
            random.seed(child)
            cuda, context, held, refused = C.CDLL("libcuda.so.1"), C.c_void_p(), [], 0
            cuda.cuInit(0)
            made = cuda.cuCtxCreate_v2(C.byref(context), 0, 0)
            while made == 0 and (time.time() < end or refused < 20):  # on a busy host it may begin late
                at = C.c_uint64()
                if cuda.cuMemAlloc_v2(C.byref(at), C.c_size_t(random.randint(1, 96) << 20)) == 0:
                    held.append(at)
                else:
                    refused += 1
                    for old in held[-4:]: cuda.cuMemFree_v2(old)
                    del held[-4:]
            os._exit(0)  # whose context came too late for what the others had taken has none
    for child in range(int(sys.argv[1])): os.wait()
""")


def peak(machine):
    said = subprocess.run([str(BUILD / "bin/simulated-gpu"), "account"], env=machine.environment, capture_output=True, check=True)
    return max(engine["memory"]["peak_bytes"] for engine in json.loads(said.stdout)["engines"])


def fill(machine, processes):
    machine.cli("run", "--vram", "4Gi", "--", sys.executable, "-c", COLD, str(processes))


@pytest.mark.parametrize("processes", [2, 8])
def test_a_cold_card_never_shows_more_than_the_limit(machine, processes):
    machine.hypervisor()
    fill(machine, processes)
    assert 3 * GIB < peak(machine) <= 4 * GIB


def test_a_hypervisor_that_starts_anew_knows_what_a_context_costs(machine):
    first = machine.hypervisor()
    fill(machine, 2)
    learned = (machine.state / "overheads").read_text()
    assert int(learned.split()[0]) > 0
    first.kill()
    machine.hypervisor()
    fill(machine, 2)
    assert 3 * GIB < peak(machine) <= 4 * GIB


@pytest.mark.parametrize("read", [False, True], ids=["never_read", "read_while_nothing_was_held"])
def test_a_card_that_nobody_can_measure_shows_no_more_than_the_limit(machine, read):
    """The hypervisor is gone before it has seen a context: what one costs is guessed until it is known."""
    hypervisor = machine.hypervisor()
    program = "import sys\nprint('{}', flush=True)\nsys.stdin.readline()\n" + COLD
    tenant = machine.start(*machine.program("run", "--vram", "4Gi", "--", sys.executable, "-c", program, "2"))
    tenant.said()
    if read:
        machine.shown("ps")
    hypervisor.kill()
    assert tenant.end() == 0
    assert 3 * GIB < peak(machine) <= 4 * GIB


@pytest.mark.parametrize("machine", ["1xtiny"], indirect=True)
@pytest.mark.parametrize("mib", [300, 511, 512, 513])
def test_a_slice_about_as_large_as_the_guess_starts_on_a_cold_card(machine, mib):
    """A context costs 8 MiB there, and 512 MiB are reserved for it while nobody knows."""
    machine.hypervisor()
    tenant = machine.tenant(["alloc:1000"], "--vram", f"{mib}Mi")
    assert [tenant.said()["result"] for _ in range(2)] == ["CUDA_SUCCESS"] * 2
    assert tenant.end() == 0

"""A driver call that never comes back: the program can be ended all the same, and its slice with it."""
import select
import sys

import pytest

from conftest import GIB, PATIENCE_S, TENANT, until
from slices import slices

HANGS = {  # what the program does, and how many of its words come before the call that hangs
    "cuCtxCreate": ([], 0),
    "cuMemAlloc:2": ([f"alloc:{GIB}", f"alloc:{GIB}"], 2),
    "cuMemFree": ([f"alloc:{GIB}", "free"], 2),
    "cuLaunchKernel": ([f"alloc:{GIB}", "load:100", "spin:1"], 3),
    "cuCtxSynchronize": ([f"alloc:{GIB}", "load:100", "spin:1"], 3),
}


@pytest.mark.parametrize("end", ["kill -9", "tensor-fusion kill"])
@pytest.mark.parametrize("call", HANGS)
def test_a_program_in_a_driver_call_that_hangs_can_be_ended_and_its_slice_is_given_back(machine, call, end):
    machine.hypervisor()
    before = machine.free_bytes()
    words, spoken = HANGS[call]
    stuck = machine.start(*machine.program("run", "--vram", "4Gi", "--name", "stuck", "--", sys.executable, TENANT, *words),
                          environment={"TENSOR_FUSION_SIM_FAULT": f"hang@{call}"})
    for _ in range(spoken):
        assert stuck.said()["result"] == "CUDA_SUCCESS"
    until("it runs", lambda: [s["state"] for s in slices(machine)] == ["running"])
    neighbour = machine.tenant([f"alloc:{GIB}", "free", "load:100", "spin:10"], "--vram", "4Gi", "--name", "neighbour")
    for _ in ("start", "alloc", "free", "load", "spin"):
        assert neighbour.said().get("result", "CUDA_SUCCESS") == "CUDA_SUCCESS"
    assert neighbour.end() == 0
    assert stuck.child.poll() is None and not select.select([stuck.child.stdout], [], [], 0.2)[0], "it hangs"
    if spoken > 1:
        assert machine.free_bytes() <= before - GIB
    if end == "kill -9":
        stuck.kill()
    else:
        machine.cli("kill", "stuck", "--signal", "KILL")
        stuck.child.wait(PATIENCE_S)
    until("the slice is gone", lambda: not slices(machine))
    until("its memory is free", lambda: machine.free_bytes() == before)

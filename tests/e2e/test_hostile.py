"""Programs that ask for more of everything than there is: refused, and nobody else notices."""
import sys

import pytest

from conftest import BUILD, MIB, PATIENCE_S, TENANT, until
from slices import account, most_held, slices

SLOTS = 512  # processes of one slice on its GPUs


@pytest.mark.parametrize("machine", ["1xtiny"], indirect=True)
def test_a_thousand_processes_at_once_are_refused_beyond_the_slots_and_harm_nobody(machine):
    machine.hypervisor()
    neighbour = machine.tenant(["load:200", f"alloc:{64 * MIB}", "busy", "spin:50", f"alloc:{MIB}", "wait"], "--vram", "128Mi", "--compute", "50%", "--name", "neighbour")
    for _ in ("start", "load", "alloc", "busy"):
        assert neighbour.said()["result"] == "CUDA_SUCCESS"
    storm = machine.start(*machine.program("run", "--vram", "256Mi", "--compute", "50%", "--name", "storm", "--",
                                           BUILD / "programs/fork_storm", 1000, MIB))
    said = storm.said()
    assert said["answered"] == said["children"] == 1000, said
    assert said["lost"] == said["strange"] == 0, said
    assert said["refused_init"] >= 1000 - SLOTS, "more processes than the account can name"
    assert 0 < said["holding"] <= 256 // 8, "a context takes 8 MiB"
    assert most_held(machine) <= (256 + 128) * MIB
    neighbour.child.stdin.write("while all of them hold what they have\n")
    neighbour.child.stdin.flush()
    for _ in ("busy_ended", "spin", "alloc"):
        went_on = neighbour.said()
        assert went_on["result"] == "CUDA_SUCCESS"
        assert went_on.get("launches", 50) >= 50 and went_on.get("seconds", 0) < PATIENCE_S
    storms = next(s for s in slices(machine) if s["name"] == "storm")
    assert storms["devices"][0]["memory_used_bytes"] <= 256 * MIB
    assert storm.end() == 0
    until("only the neighbour is left", lambda: [s["name"] for s in slices(machine)] == ["neighbour"])
    again = machine.tenant([f"fill:{MIB}"], "--vram", "256Mi", "--name", "again")
    assert again.said()["result"] == "CUDA_SUCCESS"
    filled = again.said()
    assert filled["bytes"] == 248 * MIB, "all that the storm had is there again"
    assert again.end() == 0
    neighbour.said()
    assert neighbour.end() == 0


def test_a_slice_of_many_processes_with_long_kernels_has_no_more_of_the_card_than_its_part(machine):
    """Each has a context of its own, and the card gives every context that has work as much time as any other: were all
    eight to launch at once, they would have 89 % of it for as long as their kernels run. A busy host makes it less."""
    machine.hypervisor()
    each = f"{sys.executable} {TENANT} occupy:500000000 spin:40"
    many = machine.start(*machine.program("run", "--gpu", "0", "--vram", "8Gi", "--compute", "10%", "--name", "many", "--",
                                          "/bin/sh", "-c", f"for n in 1 2 3 4 5 6 7 8; do {each} & done; wait"))
    until("all are there", lambda: [len(s["processes"]) for s in slices(machine)] == [8])
    for _ in range(16):
        assert many.said()["result"] == "CUDA_SUCCESS"
    other = machine.tenant(["occupy:1000000", "busy"], "--gpu", "0", "--vram", "1Gi", "--compute", "60%", "--name", "other")
    for _ in ("start", "occupy", "busy"):
        assert other.said()["result"] == "CUDA_SUCCESS"
    before = account(machine)[0]
    until("six seconds of the card's time", lambda: account(machine)[0]["clock_ns"] > before["clock_ns"] + 6_000_000_000)
    after = account(machine)[0]
    had = {p["pid"]: p["service_ns"] for p in before["processes"]}
    used = {p["pid"]: p["service_ns"] - had.get(p["pid"], 0) for p in after["processes"]}
    passed = after["clock_ns"] - before["clock_ns"]
    own = max(used.values())
    assert sum(used.values()) - own < 0.35 * passed, f"{used} of {passed}"

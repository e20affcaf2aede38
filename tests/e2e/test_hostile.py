"""Programs that ask for more of everything than there is: refused, and nobody else notices."""
import pytest

from conftest import BUILD, MIB, until
from slices import most_held, slices

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
        assert went_on.get("launches", 50) >= 50 and went_on.get("seconds", 0) < 10
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

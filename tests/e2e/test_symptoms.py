"""What users of other slices reported, one test per symptom, with the whole product. docs/internals/symptoms.md has the list."""
import time

import pytest

from conftest import BUILD, GIB, MIB, PATIENCE_S, until
from slices import account, slices

one_card = pytest.mark.parametrize("machine", ["1xtiny", "1xt4", "1xh100"], indirect=True)


def used_percent(machine, seconds):
    """Of the first card's own time, over as long."""
    before = account(machine)[0]
    time.sleep(seconds)  # this is what is measured, and no waiting for a state
    after = account(machine)[0]
    return 100 * (after["busy_ns"] - before["busy_ns"]) / (after["clock_ns"] - before["clock_ns"])


@one_card
def test_a_limit_does_nothing_for_one_that_is_alone_or_hangs_on_the_size_of_the_card(machine):
    """R31, R36. The device keeps its own account; a busy host can only make it less."""
    machine.hypervisor()
    tenant = machine.tenant(["occupy:2000000", "busy"], "--vram", "512Mi" if "tiny" in machine.environment["TENSOR_FUSION_SIM"]
                            else "2Gi", "--compute", "25%", "--name", "alone")
    for _ in ("start", "occupy", "busy"):
        assert tenant.said()["result"] == "CUDA_SUCCESS"
    used_percent(machine, 1)  # it has got going

    def enough_and_never_more():
        parts = [used_percent(machine, 1) for _ in range(3)]
        assert sum(parts) / len(parts) <= 28, parts
        assert max(parts) <= 35, f"in one second: {parts}"
        return 20 <= sum(parts) / len(parts)
    until("it gets what it may", enough_and_never_more)
    machine.cli("limit", "alone", "--compute", "100%")
    until("the card was idle for want of a limit only", lambda: used_percent(machine, 0.5) >= 80)


@pytest.mark.parametrize("machine", ["1xtiny"], indirect=True)
def test_hundreds_of_programs_take_a_minute_to_start(machine):
    """R55: 64 at once, all of them with a context and memory, take about as long as without slices."""
    def longest_ms(*command):
        process = machine.start(*command, BUILD / "programs/fork_storm", 64, MIB)
        said = process.said()
        assert process.end() == 0 and said["holding"] == 64, said
        return said["longest_ms"]
    machine.hypervisor()
    direct = longest_ms()
    # For the hypervisor the memory of those before is taken till it reads the driver again.
    limited = longest_ms(*machine.program("run", "--wait", "--vram", "900Mi", "--"))
    assert limited <= 2 * direct + 1000


def test_a_program_on_two_cards_takes_twice_as_long(machine):
    """R57: one second of work on each, at the same time."""
    machine.hypervisor()
    for command in ([], machine.program("run", "--gpus", "2", "--vram", "2Gi", "--compute", "100%", "--")):
        def soon_enough():
            process = machine.start(*command, BUILD / "programs/two_cards", 200, 5_000_000)
            seconds = process.said()["seconds"]
            assert seconds >= 1 and process.end() == 0, seconds
            return seconds <= 1.4  # a busy host may come late with some of it, but not each time by as much
        until("both work at the same time", soon_enough)


@pytest.mark.parametrize("machine", ["8xh100"], indirect=True)
@pytest.mark.parametrize("cards", [1, 2, 4, 8])
def test_several_cards_of_one_slice_crash_together(machine, cards):
    """R44: one process for each card, which share their buffers; fine with two cards, and a crash with four."""
    machine.hypervisor()
    machine.cli("run", "--gpus", cards, "--vram", "2Gi", "--compute", "50%", "--", BUILD / "programs/tensor_parallel", cards)
    said = [e for e in machine.shown("events")["events"] if e["kind"] in ("tampered", "bypass suspected", "unlimited", "over limit")]
    assert not said, "not one of its processes is without a limiter, beyond the limit or at odds with the driver"


@pytest.mark.parametrize("machine", ["1xh100"], indirect=True)
def test_two_slices_of_one_card_crash_when_they_share_memory(machine):
    """R46: both on the same card, two processes each that share among themselves, and one slice's opens another's memory."""
    machine.hypervisor()
    both = [machine.start(*machine.program("run", "--vram", "4Gi", "--compute", "30%", "--name", name, "--",
                                           BUILD / "programs/tensor_parallel", 2)) for name in ("left", "right")]
    assert [process.child.wait(60) for process in both] == [0, 0]

    def words(process):
        return dict(word.split("=", 1) for word in process.child.stdout.readline().split())
    program = BUILD / "programs/limiter_symptoms"
    owner = machine.start(*machine.program("run", "--vram", "1Gi", "--compute", "30%", "--name", "owner", "--", program, "share"))
    assert words(owner)["retain"] == "0"
    shared = words(owner)
    assert shared["handle_code"] == "0"
    user = machine.start(*machine.program("run", "--vram", "1Gi", "--compute", "30%", "--name", "user", "--", program, "open",
                                          shared["handle"]))
    assert words(user)["retain"] == "0"
    assert words(user)["open"] == "0"
    used = {s["name"]: s["devices"][0]["memory_used_bytes"] for s in slices(machine)}
    assert used["owner"] == used["user"] + 64 * MIB, "who made it has it on its account, and who opened it has not"
    for process in (user, owner):
        assert process.end() == 0


@pytest.mark.parametrize("machine", ["1xh100"], indirect=True)
def test_a_fraction_of_memory_is_taken_for_a_share_of_time(machine):
    """R38: neither limit says anything about the other, when asked for and when changed."""
    machine.hypervisor()

    def limits(name):
        device = next(s for s in slices(machine) if s["name"] == name)["devices"][0]
        return device["memory_limit_bytes"], device["compute_limit_percent"]

    def sleeping(name, *options):
        machine.start(*machine.program("run", "--name", name, *options, "--", "sleep", "1000"))
        until("it runs", lambda: any(s["name"] == name and s["state"] == "running" for s in slices(machine)))
        return limits(name)
    few, many = sleeping("few", "--vram", "8Gi", "--compute", "40%"), sleeping("many", "--vram", "40Gi", "--compute", "40%")
    assert few == (8 * GIB, 40) and many == (40 * GIB, 40)
    assert sleeping("memory-alone", "--vram", "8Gi")[1] == 100, "a tenth of the memory is no tenth of the time"
    machine.cli("limit", "few", "--vram", "16Gi")
    assert limits("few") == (16 * GIB, 40)
    machine.cli("limit", "few", "--compute", "10%")
    assert limits("few") == (16 * GIB, 10)


def test_a_promised_out_of_memory_killer_does_nothing_or_ends_a_neighbour(machine):
    """R26: there is none. What is too much is refused when it is asked for; who is over a lowered limit goes on."""
    machine.hypervisor()
    neighbour = machine.tenant(["wait", f"alloc:{MIB}"], "--vram", "1Gi", "--name", "neighbour")
    tenant = machine.tenant([f"alloc:{3 * GIB}", "occupy:1000000", "wait", f"fill:{MIB}", "spin:20", "free", f"alloc:{GIB // 4}"],
                            "--vram", "4Gi", "--name", "large")
    for process, words in ((neighbour, 2), (tenant, 4)):
        for _ in range(words):
            process.said()
    machine.cli("limit", "large", "--vram", "1Gi")
    large = next(s for s in slices(machine) if s["name"] == "large")["devices"][0]
    assert large["memory_used_bytes"] > 3 * GIB > large["memory_limit_bytes"] == GIB
    time.sleep(2.5)  # the hypervisor looks at the driver's account once a second, and nothing is to come of it
    assert {s["name"]: s["state"] for s in slices(machine)} == {"neighbour": "running", "large": "running"}
    tenant.child.stdin.close()
    assert tenant.said() == {"word": "fill", "result": "CUDA_ERROR_OUT_OF_MEMORY", "bytes": 0}
    for word in ("spin", "free", "alloc"):
        said = tenant.said()
        assert said["word"] == word and said.get("result", "CUDA_SUCCESS") == "CUDA_SUCCESS"
    assert tenant.child.wait(PATIENCE_S) == 0
    neighbour.child.stdin.close()
    assert neighbour.said()["result"] == "CUDA_SUCCESS"
    assert neighbour.child.wait(PATIENCE_S) == 0

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


@pytest.mark.parametrize("before, work", [([], "spin"), (["capture"], "spin"), ([], "fleeting")],
                         ids=["", "with a capture that never ends", "on streams that are destroyed at once"])
def test_a_slice_of_many_processes_with_long_kernels_has_no_more_of_the_card_than_its_part(machine, before, work):
    """Each has a context of its own, and the card gives every context that has work as much time as any other: were all
    eight to launch at once, they would have 89 % of it for as long as their kernels run. They take turns instead, and
    none keeps the others out. By the card's own account; a busy host makes it less for both."""
    machine.hypervisor()
    each = " ".join([sys.executable, str(TENANT), *before, "occupy:200000000", f"{work}:300"])
    many = machine.start(*machine.program("run", "--gpu", "0", "--vram", "8Gi", "--compute", "30%", "--name", "many", "--",
                                          "/bin/sh", "-c", f"for n in 1 2 3 4 5 6 7 8; do {each} & done; wait"))
    until("all are there", lambda: [len(s["processes"]) for s in slices(machine)] == [8])
    said = [many.said() for _ in range(16 + 8 * len(before))]
    assert {word["result"] for word in said} == {"CUDA_SUCCESS"}
    of_many = [word["pid"] for word in said if word["word"] == "start"]
    other = machine.tenant(["occupy:4000000", "busy"], "--gpu", "0", "--vram", "1Gi", "--compute", "60%", "--name", "other")
    of_other = other.said()["pid"]
    for _ in ("occupy", "busy"):
        assert other.said()["result"] == "CUDA_SUCCESS"

    def look():
        card = account(machine)[0]
        return card["clock_ns"], {p["pid"]: p["service_ns"] for p in card["processes"]}
    first = look()[1]

    def the_other_had_more():
        began, had = look()
        until("six seconds of the card's time", lambda: look()[0] > began + 6_000_000_000)
        ended, has = look()
        passed, used = ended - began, {pid: ns - had.get(pid, 0) for pid, ns in has.items()}
        together = sum(used[pid] for pid in of_many)
        assert together < 0.45 * passed, f"{used} of {passed}"
        return used[of_other] > together  # a busy host may bring it late to the card, but not each time
    until("60 % had more than 30 %", the_other_had_more)
    until("each of the eight has had a turn since", lambda: all(look()[1][pid] > first[pid] for pid in of_many), 2 * PATIENCE_S)


def test_slices_of_one_card_are_never_shown_with_more_than_that_has_together(machine):
    """A kernel learned as one of microseconds takes half a second: while such run, the time of a neighbour that launches
    and waits stands in both accounts."""
    machine.hypervisor()
    other = machine.tenant(["occupy:1000000", "busy"], "--gpu", "0", "--vram", "1Gi", "--compute", "60%", "--name", "other")
    for _ in ("start", "occupy", "busy"):
        assert other.said()["result"] == "CUDA_SUCCESS"
    machine.tenant(["occupy:10000", "spin:1000", "takes:500000000", "spin:100"], "--gpu", "0", "--vram", "1Gi", "--compute", "10%", "--name", "late")

    def shares():
        return {s["name"]: s["devices"][0]["compute_used_percent"] for s in slices(machine)}
    until("the long ones run", lambda: shares().get("late", 0) > 30)
    began = account(machine)[0]["clock_ns"]
    while account(machine)[0]["clock_ns"] < began + 2_000_000_000:
        shown = shares()
        assert sum(shown.values()) <= 100.001, shown


@pytest.mark.parametrize("ns, what", [(2_000_000, "functions"), (1_000_000, "streams"), (1_000_000, 200)])
def test_what_is_made_anew_for_each_launch_and_many_streams_have_their_part_and_leave_others_theirs(machine, ns, what):
    """A new function had twice its part, charged by a first guess each time; many streams were charged as if one ran
    after the other, and their neighbour waited for that, before an idle card."""
    machine.hypervisor()
    neighbour = machine.tenant(["occupy:1000000", "busy"], "--gpu", "0", "--vram", "1Gi", "--compute", "60%", "--name", "neighbour")
    of_neighbour = neighbour.said()["pid"]
    for _ in ("occupy", "busy"):
        assert neighbour.said()["result"] == "CUDA_SUCCESS"
    machine.start(*machine.program("run", "--gpu", "0", "--vram", "2Gi", "--compute", "10%", "--name", "anew", "--",
                                   BUILD / "programs/always_anew", ns, what))

    def used():
        card = account(machine)[0]
        by = {p["pid"]: p["service_ns"] for p in card["processes"]}
        own = by.pop(of_neighbour, 0)
        return card["clock_ns"], own, sum(by.values())
    until("it has begun", lambda: used()[2] > 0)

    def both_had_their_part():
        """In six seconds; where the host has no processor for one of them, in some later ones."""
        before = used()
        until("six more", lambda: used()[0] > before[0] + 6_000_000_000)
        passed, own, anew = (after - earlier for after, earlier in zip(used(), before))
        assert anew < 0.17 * passed, f"{anew} of {passed}"
        return own > 0.5 * passed and anew > 0.05 * passed
    until("both had their part", both_had_their_part)


@pytest.mark.parametrize("machine", ["1xtiny"], indirect=True)
@pytest.mark.parametrize("loops, end", [(1, "exit"), (1, "kill"), (8, "exit")])
def test_programs_that_end_before_their_kernels_do_have_no_more_of_the_card_than_their_part(machine, loops, end):
    """Nobody is left to tell what such a kernel took: charged by the first guess, they had half of the card."""
    machine.hypervisor()
    neighbour = machine.tenant(["occupy:1000000", "busy"], "--vram", "64Mi", "--compute", "60%", "--name", "neighbour")
    for _ in ("start", "occupy", "busy"):
        assert neighbour.said()["result"] == "CUDA_SUCCESS"
    each = f"while :; do {BUILD}/programs/short_lived 300000000 200 {end}; done"
    machine.start(*machine.program("run", "--vram", "128Mi", "--compute", "10%", "--name", "short", "--",
                                   "/bin/sh", "-c", f"for n in $(seq {loops}); do ({each}) 2>/dev/null & done; wait"))

    def used():
        card, own = account(machine)[0], {p["pid"] for s in slices(machine) if s["name"] == "neighbour" for p in s["processes"]}
        by = {p["pid"]: p["service_ns"] for p in card["processes"]}
        return card["clock_ns"], sum(ns for pid, ns in by.items() if pid in own), sum(ns for pid, ns in by.items() if pid not in own)
    until("they have begun", lambda: used()[2] > 0)
    begun = used()[0]
    until("three seconds of the card's time", lambda: used()[0] > begun + 3_000_000_000)

    def the_neighbour_had_its_part():
        """In eight seconds; where the host has no processor for it, in some later ones."""
        before = used()
        until("eight more", lambda: used()[0] > before[0] + 8_000_000_000)
        passed, neighbours, short = (after - earlier for after, earlier in zip(used(), before))
        assert short < 0.25 * passed, f"{short} of {passed}"
        return neighbours > 0.4 * passed
    until("the neighbour had its part", the_neighbour_had_its_part)

"""A program of others that speaks to the management library: `pynvml` of nvidia-ml-py, on the card and in a slice."""
import json
import pathlib
import subprocess
import sys

import pytest

from conftest import GIB, PATIENCE_S, until

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed; run ./dev setup")
TOOL = pathlib.Path(__file__).with_name("nvml_tool.py")


def seen(machine, *before):
    done = subprocess.run([*before, sys.executable, str(TOOL)], env=machine.environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_tool_finds_the_cards_their_memory_use_and_processes(machine):
    at_rest = seen(machine)
    assert [card["name"] for card in at_rest["cards"]] == ["NVIDIA H100 80GB HBM3"] * 2
    assert len({card["uuid"] for card in at_rest["cards"]} | {card["bus"] for card in at_rest["cards"]}) == 4
    assert at_rest["beyond"] == "Invalid Argument"
    assert at_rest["cuda"] >= 12000 and at_rest["driver"]
    for card in at_rest["cards"]:
        assert card["total"] == card["total_v2"] > 79 * GIB
        assert card["free"] + card["used"] <= card["total"] and card["processes"] == {} and card["gpu_percent"] == 0
        assert card["capability"] == [9, 0]
    program = machine.outside(f"alloc:{8 * GIB}", "occupy:5000000", "busy")
    pid = program.said()["pid"]
    for _ in range(3):
        program.said()
    busy = until("it shows as busy", lambda: (now := seen(machine))["cards"][0]["gpu_percent"] >= 90 and now)
    first, second = busy["cards"]
    assert list(first["processes"]) == [str(pid)] and 8 * GIB < first["processes"][str(pid)] < 9 * GIB
    assert first["used"] - at_rest["cards"][0]["used"] == first["processes"][str(pid)]
    assert first["milliwatts"] > at_rest["cards"][0]["milliwatts"]
    assert second["gpu_percent"] == 0 and second["processes"] == {}
    program.child.stdin.close()
    program.said()
    program.end()
    until("it is at rest again", lambda: seen(machine)["cards"][0]["processes"] == {})


def test_a_tool_in_a_slice_finds_the_slice_for_the_card(machine):
    machine.hypervisor()
    stranger = machine.outside(f"alloc:{8 * GIB}", "wait")
    for _ in range(3):
        stranger.said()
    inside = seen(machine, *machine.program("run", "--vram", "2Gi", "--compute", "50%", "--"))
    card, = inside["cards"]
    assert card["name"] == "NVIDIA H100 80GB HBM3"
    assert card["total"] == card["total_v2"] == 2 * GIB
    assert (card["used"], card["free"], card["processes"]) == (0, 2 * GIB, {}), "nothing of others"
    assert inside["beyond"] == "Invalid Argument"
    assert stranger.end() == 0

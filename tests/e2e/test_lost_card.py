"""A card that falls off the bus stays listed under its index, as lost, and nobody gets it or another in its place."""
import pytest

from conftest import until


def lose(machine):
    (machine.folder / "sim").mkdir(exist_ok=True)
    (machine.folder / "sim/faults").write_text("lost=0\n")


def listed(machine):
    return [(device["index"], device["healthy"]) for device in machine.shown("devices")["devices"]]


def check_refusals(machine):
    for options in (["--gpu", "0"], ["--gpus", "2"], ["--gpu", "0", "--wait"]):
        _, error = machine.cli("run", *options, "--vram", "1Gi", "--", "true", code=119)
        assert "GPU 0" in error and "lost: the device has fallen off the bus" in error and "tensor-fusion doctor" in error, error
    machine.cli("run", "--gpu", "1", "--vram", "1Gi", "--", "true")
    machine.cli("run", "--vram", "1Gi", "--", "true")
    shown, _ = machine.cli("devices")
    assert "GPU 0 is lost: the device has fallen off the bus and answers no more" in shown
    found = [one for one in machine.shown("doctor")["findings"] if "fallen off the bus" in one["detail"]]
    assert [one["verdict"] for one in found] == ["note"] and "reset or replace the card" in found[0]["advice"], "slices start on the other"


def test_a_card_lost_while_the_hypervisor_runs(machine):
    machine.hypervisor()
    uuids = [device["uuid"] for device in machine.shown("devices")["devices"]]
    lose(machine)
    until("it is noticed", lambda: listed(machine) == [(0, False), (1, True)])
    check_refusals(machine)
    assert [device["uuid"] for device in machine.shown("devices")["devices"]] == uuids
    assert any("fallen off the bus" in event["message"] for event in machine.shown("events")["events"])


def test_a_card_lost_before_the_hypervisor_came(machine):
    machine.hypervisor().kill()
    lose(machine)
    machine.hypervisor()
    assert listed(machine) == [(0, False), (1, True)]
    check_refusals(machine)


@pytest.mark.parametrize("machine", ["1xh100"], indirect=True)
def test_doctor_says_that_a_lost_card_stops_slices_where_there_is_no_other(machine):
    machine.hypervisor()
    lose(machine)
    until("it is noticed", lambda: listed(machine) == [(0, False)])
    output, _ = machine.cli("doctor", code=1)
    assert "STOP  device " in output and "fallen off the bus" in output

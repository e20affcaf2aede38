"""What `doctor` says of a machine, and of the inside of a slice."""
import json
import os
import subprocess

import pytest

from conftest import GIB, until
from slices import another_user


def test_doctor_ends_with_0_where_slices_work(machine):
    output, _ = machine.cli("doctor", "/bin/sh")
    assert "can be limited" in output and "nothing here would stop a slice" in output


def test_doctor_notes_strangers_and_says_each_thing_once(machine):
    machine.hypervisor()
    stranger = machine.outside(f"alloc:{GIB}", "wait")
    stranger.said(), stranger.said()
    findings = until("the stranger is seen", lambda: (f := machine.shown("doctor")["findings"]) and
                     any("without a limiter" in one["detail"] and one["verdict"] != "ok" for one in f) and f)
    assert {one["verdict"] for one in findings if one["name"] == "unlimited"} == {"note"}
    assert [one["name"] for one in findings].count("hypervisor") == 1
    assert [one["name"] for one in findings].count("state") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_doctor_takes_another_users_hypervisor_for_what_it_is(machine, folder):
    as_nobody = another_user(machine, folder)
    done = subprocess.run([*as_nobody, *machine.program("doctor", "-o", "json")], env=machine.environment, capture_output=True, text=True)
    state = [one for one in json.loads(done.stdout)["findings"] if one["name"] == "state"]
    assert [one["verdict"] for one in state] == ["ok"], state


def test_doctor_names_a_missing_limiter(machine):
    output, _ = machine.cli("doctor", code=1, environment={"TENSOR_FUSION_LIMITER": "/no/such/limiter.so"})
    assert "/no/such/limiter.so" in output


def test_doctor_inside_a_slice_says_which_and_judges_only_what_can_be_judged_there(machine):
    machine.hypervisor()
    for options in ([], ["--no-namespace"]):
        output, _ = machine.cli("run", "--vram", "1Gi", "--name", "night", *options, "--", *machine.program("doctor"))
        assert "inside the slice `night`" in output and "nothing here would stop a program of this slice" in output, output
        assert "  driver " in output and "  limiter " in output
        for outside in ("  state ", "  hypervisor ", "  namespaces ", "  device files "):
            assert outside not in output, output


def test_doctor_says_of_a_wrong_fault_rule_to_correct_it(machine):
    output, _ = machine.cli("doctor", code=1, environment={"TENSOR_FUSION_SIM_FAULT": "oom@cuMemAlocc:3"})
    assert "did you mean cuMemAlloc?" in output and "-> correct the rule, or take it out" in output
    machine.cli("devices", code=19, environment={"TENSOR_FUSION_SIM_FAULT": "oom@cuMemAlocc:3"})

"""Commands while the hypervisor is stopped, killed, or was never there."""
import os
import signal
import subprocess

import pytest

from conftest import PATIENCE_S, until
from slices import another_user, sleeper, slices


def test_ps_without_a_hypervisor_is_an_empty_list(machine):
    assert slices(machine) == []
    assert "run" in machine.cli("ps")[0] and f"no hypervisor runs on {machine.state}" in machine.cli("ps")[0]


@pytest.mark.parametrize("words", ["ps", "ps -o json", "ps --names", "events", "limit night --vram 1Gi", "kill night", "logs night"])
def test_a_state_directory_that_is_not_there_is_no_empty_machine(machine, words):
    output, error = machine.cli("--state", machine.folder / "nowhere", *words.split(), code=12)
    assert output == "" and f"there is no state directory {machine.folder}/nowhere" in error, error
    assert not (machine.folder / "nowhere").exists()


def test_a_killed_hypervisor_is_said_to_have_been_replaced_while_slices_went_on(machine):
    hypervisor = machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    hypervisor.kill()
    output, error = machine.cli("ps")
    assert "night" in output and error == "tensor-fusion: the hypervisor was gone; another was started, and has taken over the slices that still run\n"
    assert machine.cli("ps")[1] == ""


def test_who_asks_a_stopped_hypervisor_is_told_after_a_second_and_once(machine):
    hypervisor = machine.hypervisor()
    os.kill(hypervisor.pid, signal.SIGSTOP)
    said = f"tensor-fusion: waiting for the hypervisor (pid {hypervisor.pid}), which is stopped; `kill -CONT {hypervisor.pid}` lets it go on\n"
    for words in (["ps"], ["run", "--vram", "1Gi", "--", "true"]):
        asking = machine.start(*machine.program(*words))
        machine.until_logged(said)
        if words == ["run", "--vram", "1Gi", "--", "true"]:
            os.kill(hypervisor.pid, signal.SIGCONT)
        else:
            asking.kill()
            (machine.folder / "log").write_text("")
    assert asking.end() == 0
    assert (machine.folder / "log").read_text().count("waiting for the hypervisor") == 1


def test_a_hypervisor_without_a_gpu_says_once_that_it_waits_for_one(machine):
    machine.environment["LD_LIBRARY_PATH"] = "/nonexistent"
    hypervisor = machine.hypervisor()
    machine.until_logged("there is no GPU to share yet: NVIDIA's driver library cannot be opened")
    until("it has tried again", lambda: [e for e in machine.shown("events")["events"] if e["kind"] == "provider" and e.get("count", 1) > 2])
    said = (machine.folder / "log").read_text()
    assert said.count("NVIDIA's driver library cannot be opened") == 2, said  # that, and the first try
    assert hypervisor.child.poll() is None


@pytest.mark.parametrize("ask", [("ps",), ("events",), ("limit", "night", "--compute", "20%"), ("kill", "night")])
def test_slices_that_outlived_their_hypervisor_are_found_again(machine, ask):
    hypervisor = machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--compute", "30%", "--name", "night")
    hypervisor.kill()
    shown, _ = machine.cli(*ask)
    assert "no slices" not in shown and "no events" not in shown
    if ask[0] == "kill":
        until("it has ended", lambda: not slices(machine))
    else:
        assert [s["name"] for s in slices(machine)] == ["night"]


def test_a_hypervisor_that_does_not_answer_is_named_and_no_command_waits_long(machine):
    hypervisor = machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    os.kill(hypervisor.pid, signal.SIGSTOP)
    asked = {words: subprocess.Popen(machine.program(*words.split()), env=machine.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for words in ("ps", "run --vram 1Gi -- true", "limit night --compute 20%", "kill night other", "doctor", "hypervisor --stop")}
    try:
        for words, child in asked.items():  # all at once; on a quiet machine each takes 10 s
            output = child.communicate(timeout=PATIENCE_S)[0]
            assert child.returncode == {"run": 118, "doctor": 1}.get(words.split()[0], 18), output
            assert f"`kill -9 {hypervisor.pid}` ends it" in output and f"pid {hypervisor.pid}" in output, words
            assert "hypervisor --stop" not in output
    finally:
        for child in asked.values():
            child.kill()
    hypervisor.kill()
    assert [s["name"] for s in slices(machine)] == ["night"], "slices go on"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_is_told_that_slices_go_on_while_the_machines_hypervisor_is_gone(machine, folder):
    as_nobody = another_user(machine, folder)
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    os.kill(int((machine.state / "hypervisor.lock").read_text()), signal.SIGKILL)
    until("it is gone", lambda: not machine.answers())
    done = subprocess.run([*as_nobody, *machine.program("ps")], env=machine.environment, capture_output=True, text=True)
    assert done.returncode == 15 and done.stdout == "", done.stdout + done.stderr
    assert f"no hypervisor runs on {machine.state}; its slices go on" in done.stderr, done.stderr

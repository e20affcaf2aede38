"""The hypervisor comes, goes, and is killed; programs in slices keep running and keep their limits."""
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import threading

import pytest

from conftest import GIB, MIB, PATIENCE_S, until
from slices import sleeper


def slices(machine):
    return machine.shown("ps")["slices"]


def test_run_starts_a_hypervisor_when_there_is_none(machine):
    tenant = machine.tenant(["info"], "--vram", "1Gi")
    tenant.said()
    assert tenant.said()["total"] == GIB
    assert tenant.end() == 0
    machine.cli("hypervisor", "--stop")


def test_a_second_hypervisor_is_refused(machine):
    first = machine.hypervisor()
    _, error = machine.cli("hypervisor", "--foreground", code=None)
    assert str(first.pid) in error or "already" in error
    assert first.child.poll() is None


def test_two_hypervisors_that_give_out_the_same_cards_say_so(machine, folder):
    machine.hypervisor()
    assert not any(device["also_shared_by"] for device in machine.shown("devices")["devices"])
    elsewhere = ["--state", folder / "other"]
    second = machine.start(*machine.program("run", *elsewhere, "--vram", "1Gi", "--name", "night", "--", "sleep", "600"))
    machine.until_logged("another hypervisor (process")
    until("it runs all the same", lambda: [s["state"] for s in machine.shown("ps", *elsewhere)["slices"]] == ["running"])
    for device in machine.shown("devices", *elsewhere)["devices"]:
        assert device["also_shared_by"] == f"process {machine.processes[0].pid} of user {os.geteuid()}"
    assert "also given out by process" in machine.cli("devices", *elsewhere)[0]
    assert "stop one of the two" in machine.cli("doctor", *elsewhere, code=1)[0]
    assert any("gives out the same card" in event["message"] for event in machine.shown("events", *elsewhere)["events"])
    second.kill()
    machine.cli("hypervisor", *elsewhere, "--stop")


def test_a_killed_hypervisor_returns_to_the_slices_it_had(machine):
    first = machine.hypervisor()
    tenant = machine.tenant(["load:2000", "busy"], "--vram", "2Gi", "--compute", "40%", "--name", "worker")
    for _ in range(3):
        tenant.said()
    before = slices(machine)
    first.kill()
    machine.hypervisor()
    until("the slice is known again", lambda: [s["name"] for s in slices(machine)] == ["worker"])
    after = slices(machine)
    assert after[0]["id"] == before[0]["id"]
    assert after[0]["devices"][0]["memory_limit_bytes"] == 2 * GIB
    tenant.child.stdin.write("end\n")
    tenant.child.stdin.close()
    ended = tenant.said()
    assert ended["result"] == "CUDA_SUCCESS", "work went on while the hypervisor was away"
    assert tenant.child.wait(PATIENCE_S) == 0


def test_a_slice_whose_record_was_deleted_is_found_again_by_its_view(machine):
    first = machine.hypervisor()
    tenant = machine.tenant(["wait", f"fill:{16 * MIB}"], "--vram", "1Gi", "--compute", "40%", "--name", "worker")
    quiet = machine.start(*machine.program("run", "--vram", "2Gi", "--name", "quiet", "--", "sleep", "1000"))
    tenant.said()
    tenant.said()
    until("both run", lambda: [s["state"] for s in slices(machine)] == ["running"] * 2)
    before = {s["name"]: s for s in slices(machine)}
    first.kill()
    shutil.rmtree(machine.state / "records")
    after = {s["name"]: s for s in slices(machine)}
    for name in ("worker", "quiet"):
        for what in ("id", "pid", "state"):
            assert after[name][what] == before[name][what]
        assert after[name]["devices"][0]["memory_limit_bytes"] == before[name]["devices"][0]["memory_limit_bytes"]
    machine.cli("kill", "quiet")
    quiet.child.wait(PATIENCE_S)
    tenant.child.stdin.close()
    filled = tenant.said()
    assert filled["result"] == "CUDA_ERROR_OUT_OF_MEMORY" and filled["bytes"] <= GIB
    tenant.child.wait(PATIENCE_S)
    until("both are over", lambda: not slices(machine))


def test_limits_hold_while_the_hypervisor_is_away(machine):
    hypervisor = machine.hypervisor()
    tenant = machine.tenant(["wait", f"fill:{16 * MIB}"], "--vram", "1Gi")
    tenant.said()
    tenant.said()
    hypervisor.kill()
    tenant.child.stdin.close()
    filled = tenant.said()
    assert filled["result"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert filled["bytes"] <= GIB


def test_the_programs_exit_code_is_passed_on(machine):
    machine.hypervisor()
    for code in (0, 1, 7, 118):
        machine.cli("run", "--vram", "1Gi", "--", "/bin/sh", "-c", f"exit {code}", code=code)


def test_the_first_look_at_a_machine_shows_its_cards(machine):
    """A hypervisor that had just been started did not know its devices yet, and `devices` said that there were none."""
    for attempt in range(5):
        machine.environment["TENSOR_FUSION_STATE"] = str(machine.folder / f"state{attempt}")
        assert len(machine.shown("devices" if attempt % 2 else "top")["devices"]) == 2
        machine.cli("hypervisor", "--stop")


def test_two_runs_that_start_at_once_share_one_hypervisor(machine):
    """Each found no hypervisor and started one; the loser's may neither fail nor take the winner's socket away."""
    for attempt in range(10):
        state = machine.folder / f"race{attempt}"
        machine.environment["TENSOR_FUSION_STATE"] = str(state)
        command = machine.program("run", "--vram", "1Gi", "--compute", "10%", "--", "true")
        pair = [subprocess.Popen(command, env=machine.environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for one in pair:
            said = one.communicate(timeout=PATIENCE_S)[1]
            assert one.returncode == 0, said
        machine.cli("ps")
        machine.cli("hypervisor", "--stop")


@pytest.mark.parametrize("end", ["--stop", "SIGTERM", "SIGKILL"])
def test_run_finds_the_next_hypervisor_when_one_is_ended_under_it(machine, end):
    """What `run` had asked of one that ended at that moment, by a command, by itself or otherwise, ended it with 118."""
    done, moments = threading.Event(), random.Random(7)
    ended, problems = [], []

    def end_one():
        """Ends the hypervisor of now, if there is one. Its file outlives it, and its number may be another's by then."""
        file = machine.state / "hypervisor.lock"
        pid = file.read_text().strip() if file.is_file() else ""
        if not pid.isdigit():
            return
        try:
            handle = os.pidfd_open(int(pid))
        except ProcessLookupError:
            return
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"hypervisor" not in words or os.fsencode(machine.state) not in words:
                return
            if end == "--stop":
                machine.cli("hypervisor", "--stop", code=None)
            else:
                signal.pidfd_send_signal(handle, getattr(signal, end))
            until("it has ended", lambda: select.select([handle], [], [], 0)[0])
            ended.append(pid)
        except (ProcessLookupError, FileNotFoundError):
            pass  # by itself, meanwhile
        finally:
            os.close(handle)

    def end_one_after_the_other():
        try:
            while not done.wait(moments.uniform(0, 0.25)):
                end_one()
        except BaseException as problem:  # noqa: a thread's is lost
            problems.append(problem)

    machine.cli("run", "--vram", "1Gi", "--", "true")
    ender = threading.Thread(target=end_one_after_the_other)
    ender.start()
    try:
        for number in range(500):
            if number >= 25 and len(set(ended)) >= 5:  # a quick machine is through before so many have been
                break
            said, _ = machine.cli("run", "--vram", "1Gi", "--compute", "10%", "--name", f"n{number}", "--", "echo", "started")
            assert said == "started\n"
    finally:
        done.set()
        ender.join()
    assert not problems, problems
    assert len(set(ended)) >= 5, f"only {ended} were ended, so nothing was tried"
    machine.cli("run", "--vram", "1Gi", "--", "true")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's programs have rights to give up")
def test_a_program_of_root_cannot_undo_its_slice(machine):
    machine.hypervisor()
    grant = "/run/tensor-fusion/slice/grant"
    undo = f"mount -o remount,bind,rw {grant} && exec 3<>{grant}"
    aside = f"umount -l {grant}; umount -l /etc/ld.so.preload; nsenter -t 1 -m true; chroot /proc/1/root true"
    _, error = machine.cli("run", "--vram", "1Gi", "--", "sh", "-c", f"({undo}) || exit 3", code=3)
    assert "LD_PRELOAD" not in error, "it has a view"
    asked = "; ".join(f"{word} && exit 4" for word in aside.split("; "))
    machine.cli("run", "--vram", "1Gi", "--", "sh", "-c", f"{asked}; mknod node c 195 0 && exit 5; exit 6", code=6)
    # A new user namespace gives rights inside it, and none over what stood there before.
    machine.cli("run", "--vram", "1Gi", "--", "sh", "-c", f"unshare -Urm sh -c '{undo}' && exit 4; exit 6", code=6)
    assert not [e for e in machine.shown("events")["events"] if e["kind"] == "tampered"]
    # Who needs the rights says so, and then it shows what is done with them.
    tenant = machine.start(*machine.program("run", "--vram", "1Gi", "--name", "kept", "--keep-capabilities", "--", "sh", "-c",
                                            f"({undo}) && echo {{}} && cat"))
    assert tenant.said() == {}
    until("the hypervisor sees it", lambda: [e for e in machine.shown("events")["events"] if e["kind"] == "tampered"])
    assert tenant.end() == 0


@pytest.mark.parametrize("end, said", [("--stop", "(`hypervisor --stop`)"), ("SIGTERM", "ends by SIGTERM")])
def test_events_tell_that_a_hypervisor_was_stopped(machine, end, said):
    hypervisor = machine.hypervisor()
    machine.cli("hypervisor", "--stop") if end == "--stop" else os.kill(hypervisor.pid, signal.SIGTERM)
    assert hypervisor.child.wait(PATIENCE_S) == 0
    event = machine.shown("events")["events"][-1]
    assert event["kind"] == "hypervisor" and said in event["message"] and "keep their last limits" in event["message"], event


def test_limits_that_a_slice_cannot_have_are_refused_in_words_about_it(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--compute", "50%", "--gpu", "0", "--name", "night")
    sleeper(machine, "--vram", "70Gi", "--compute", "40%", "--gpu", "0", "--name", "day")
    for limits, why in (["--vram", "20Gi"], "20Gi of memory asked, 9.65Gi"), (["--compute-request", "80%", "--compute", "90%"], "80% of compute asked, 60% free"):
        error = machine.cli("limit", "night", *limits, code=10)[1]
        assert error.startswith("tensor-fusion: its cards cannot give `night` that, and its limits stay as they were\n") and why in error, error

"""The command line on a whole machine: names, limits while running, signals, JSON everywhere."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from conftest import GIB, PATIENCE_S, ROOT, until
from slices import another_user, sleeper, slices


def test_every_command_that_shows_something_prints_json(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--compute", "30%", "--name", "night")
    assert [s["name"] for s in slices(machine)] == ["night"]
    device = slices(machine)[0]["devices"][0]
    assert device["memory_limit_bytes"] == GIB and device["compute_limit_percent"] == 30
    assert len(machine.shown("devices")["devices"]) == 2
    assert machine.shown("top")["slices"][0]["name"] == "night"
    assert any(e["kind"] == "started" for e in machine.shown("events")["events"])
    assert machine.shown("version")["version"]
    assert isinstance(json.loads(machine.cli("doctor", "-o", "json", code=None)[0])["findings"], list)
    assert machine.shown("limit", "night", "--compute", "60%")["slices"][0]["devices"][0]["compute_limit_percent"] == 60
    assert machine.shown("kill", "night")["signalled"][0]["name"] == "night"
    _, error = machine.cli("ps", "nobody", "-o", "json", code=12)
    assert json.loads(error)["error"]["exit_code"] == 12


def test_json_of_help_and_of_an_output_that_cannot_be_written(machine):
    _, error = machine.cli("-o", "json", "help", "nosuch", code=2)
    assert json.loads(error)["error"]["exit_code"] == 2
    codes = {row["code"]: row["of_run"] for row in machine.shown("help")["exit_codes"]}
    assert (codes[0], codes[1], codes[2], codes[19], codes[126], codes[128]) == (0, 101, 2, 119, 126, 128)
    with open("/dev/full", "w") as full:
        done = subprocess.run(machine.program("-o", "json", "version"), stdout=full, stderr=subprocess.PIPE, text=True, env=machine.environment)
    assert done.returncode == 1
    assert "No space left" in json.loads(done.stderr)["error"]["message"]


def test_tables_for_no_terminal_are_as_wide_as_is_said(machine):
    machine.hypervisor()
    def widest(**environment):
        return max(map(len, machine.cli("devices", environment=environment)[0].splitlines()))
    assert widest() > 100 and widest(COLUMNS="100") <= 100 and widest(COLUMNS="wide") > 100


def test_a_new_limit_keeps_what_the_slice_is_certain_of(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--compute-request", "20%", "--compute", "60%", "--name", "night")

    def shares(*options):
        device = machine.shown("limit", "night", *options)["slices"][0]["devices"][0]
        return device["compute_request_percent"], device["compute_limit_percent"]
    assert shares("--compute", "50%") == (20, 50)
    assert "certain of 10%" in machine.cli("limit", "night", "--compute", "10%")[1]
    assert shares("--vram", "2Gi") == (10, 10)
    assert shares("--compute", "30%", "--compute-request", "0%") == (0, 30)
    messages = [e["message"] for e in machine.shown("events")["events"] if e["kind"] == "limits"]
    assert messages[0] == "changed while running from 20%-60% and 1Gi to 20%-50% and 1Gi", messages


def test_what_a_slice_is_certain_of_cannot_be_raised_above_its_limit(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--compute", "30%", "--name", "night")
    _, error = machine.cli("limit", "night", "--compute-request", "50%", code=2)
    assert "--compute-request 50% is more than --compute 30%" in error and "give --compute too" in error
    assert slices(machine)[0]["devices"][0]["compute_request_percent"] == 30
    machine.cli("limit", "night", "--compute-request", "50%", "--compute", "60%")


def test_a_slice_that_is_named_twice_is_signalled_once(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    identity = slices(machine)[0]["id"]
    assert [s["name"] for s in machine.shown("kill", "night", "night", identity)["signalled"]] == ["night"]


def test_a_slice_may_be_certain_of_nothing(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--compute-request", "0%", "--compute", "60%")
    assert slices(machine)[0]["devices"][0]["compute_request_percent"] == 0


def test_events_tell_of_a_slice_over_its_limit_and_outlive_the_hypervisor(machine):
    hypervisor = machine.hypervisor()
    tenant = machine.tenant([f"alloc:{2 * GIB}", "wait"], "--vram", "4Gi", "--name", "night")
    tenant.said()
    assert tenant.said()["result"] == "CUDA_SUCCESS"
    machine.cli("limit", "night", "--vram", "1Gi")
    told = until("it is told", lambda: [e for e in machine.shown("events")["events"] if e["kind"] == "over limit"])
    assert told[0]["slice"] == "night" and "its limit is 1Gi" in told[0]["message"]
    tenant.kill()
    until("it has ended", lambda: not slices(machine))
    hypervisor.kill()
    assert "over limit" in machine.cli("events")[0]
    machine.hypervisor()
    assert "over limit" in machine.cli("events")[0]


def test_a_simulated_machine_may_be_named_by_a_relative_path(machine):
    (machine.folder / "mine.yaml").write_text("devices: [{profile: h100, count: 3}]\n")
    done = subprocess.run(machine.program("devices", "-o", "json"), cwd=machine.folder, capture_output=True, text=True,
                          env={**machine.environment, "TENSOR_FUSION_SIM": "mine.yaml"})
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["devices"]) == 3


def test_a_slice_ends_with_its_program_and_gives_its_share_back(machine):
    machine.hypervisor()
    first = sleeper(machine, "--vram", "70Gi", "--compute", "100%", "--gpu", "0")
    _, error = machine.cli("run", "--gpu", "0", "--vram", "20Gi", "--", "true", code=110)
    assert "GPU 0" in error and "wait" in error
    first.kill()
    until("the share is free", lambda: not slices(machine))
    machine.cli("run", "--gpu", "0", "--vram", "70Gi", "--compute", "100%", "--", "true")


def test_a_killed_run_takes_its_program_with_it_because_it_is_its_program(machine):
    machine.hypervisor()
    run = sleeper(machine, "--vram", "1Gi")
    until("the slice knows its process", lambda: slices(machine)[0]["pid"] == run.pid)
    until("the same process is the program", lambda: open(f"/proc/{run.pid}/comm").read().strip() == "sleep")


def test_who_mistypes_one_of_several_names_ends_no_slice(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    for names in (("night", "nihgt"), ("nihgt", "night")):
        _, error = machine.cli("kill", *names, code=12)
        assert "nihgt" in error and "nothing was signalled" in error, error
    assert [one["name"] for one in slices(machine)] == ["night"]


def test_commands_reach_the_next_hypervisor_at_once_after_one_was_killed(machine):
    """A child that it had just forked keeps its door open for a moment, with nobody behind it."""
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    for _ in range(15):
        pid = int((machine.state / "hypervisor.lock").read_text())
        os.kill(pid, signal.SIGKILL)
        assert [one["name"] for one in slices(machine)] == ["night"]


def test_a_hypervisor_is_not_held_to_the_limits_of_the_shell_that_started_it(machine):
    words = " ".join(machine.program("--state", machine.state, "run", "--vram", "1Gi", "--name", "night", "-d", "--", "sleep", "60"))
    subprocess.run(["sh", "-c", f"ulimit -S -t 7; umask 077; exec nice -n 5 {words}"], env=machine.environment, check=True)
    pid = int((machine.state / "hypervisor.lock").read_text())
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines()
    soft = {line[:25].strip(): line[25:].split()[0] for line in limits}
    assert soft["Max cpu time"] == "unlimited", soft
    if os.geteuid() == 0:
        assert os.getpriority(os.PRIO_PROCESS, pid) == 0


def test_programs_of_another_user_find_the_simulated_machine_of_the_hypervisor(machine):
    machine.hypervisor()
    said, _ = machine.cli("run", "--vram", "1Gi", "--", "sh", "-c", "echo $TENSOR_FUSION_SIM_DIR",
                          environment={"TENSOR_FUSION_SIM_DIR": "/nowhere"})
    assert said.strip() == machine.environment["TENSOR_FUSION_SIM_DIR"]


def test_the_simulated_driver_has_the_version_that_its_description_says(machine):
    (machine.folder / "old.yaml").write_text('cuda: "12.4"\ndevices:\n  - profile: t4\n')
    asks = ("import ctypes; driver = ctypes.CDLL('libcuda.so.1'); version = ctypes.c_int()\n"
            "for _ in range(2): driver.cuDriverGetVersion(ctypes.byref(version)), print(version.value), driver.cuInit(0)")
    told = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True,
                          env={**machine.environment, "TENSOR_FUSION_SIM": str(machine.folder / "old.yaml"),
                               "TENSOR_FUSION_SIM_DIR": str(machine.folder / "old")})
    assert told.stdout.split() == ["12040", "12040"], told.stderr


def test_kill_reaches_every_process_of_the_slice(machine):
    machine.hypervisor()
    tree = sleeper(machine, "--vram", "1Gi", "--name", "tree", program=("sh", "-c", "sleep 60 & sleep 60 & wait"))
    children = until("both children run", lambda: (pids := subprocess.run(["pgrep", "-P", str(tree.pid)], capture_output=True, text=True).stdout.split())
                     and len(pids) == 2 and pids)
    machine.cli("kill", "tree", "--signal", "KILL")
    assert tree.child.wait(PATIENCE_S) == -signal.SIGKILL
    until("its children are gone", lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in children))


def test_kill_names_what_does_not_end(machine):
    machine.hypervisor()
    deaf = sleeper(machine, "--vram", "1Gi", "--name", "deaf", program=("sh", "-c", "trap '' TERM; echo '1'; while :; do sleep 1; done"))
    deaf.said()
    _, error = machine.cli("kill", "deaf", code=1)
    assert str(deaf.pid) in error and "kill -s KILL deaf" in error
    assert machine.cli("kill", "deaf", "-s", "USR2", "-o", "json", code=0)  # not meant to end it: nothing to wait for
    assert deaf.child.wait(PATIENCE_S) == -signal.SIGUSR2
    polite = sleeper(machine, "--vram", "1Gi", "--name", "polite", program=("sh", "-c", "trap 'sleep 0.2; exit 0' TERM; echo '1'; while :; do sleep 0.1; done"))
    polite.said()
    assert machine.cli("kill", "polite") == ("", "")
    assert polite.child.poll() is not None or polite.child.wait(PATIENCE_S) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_users_of_the_machines_hypervisor_reach_their_own_slices_and_no_others(machine, folder):
    as_nobody = another_user(machine, folder)
    as_third = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"]

    def done(user, *words, code=0):
        ended = subprocess.run([*user, *machine.program(*words)], env=machine.environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout, ended.stderr

    said, _ = done(as_nobody, "run", "-d", "--name", "theirs", "--vram", "1Gi", "--compute", "20%", "--", "sh", "-c", "echo mine; id -u; exec sleep 600")
    assert said == "theirs\n"
    until("its output is there", lambda: done(as_nobody, "logs", "theirs")[0] == "mine\n65534\n")
    until("the slice runs", lambda: [s["state"] for s in slices(machine)] == ["running"])
    for user in (as_nobody, as_third, []):  # whoever may connect may look
        assert [s["name"] for s in json.loads(done(user, "ps", "-o", "json")[0])["slices"]] == ["theirs"]
    for words in (["kill", "theirs"], ["limit", "theirs", "--compute", "50%"], ["logs", "theirs"]):
        error = done(as_third, *words, code=15)[1]
        assert "`theirs` belongs to another user" in error and len(error.splitlines()) == 1
    assert done(as_third, "run", "--name", "theirs", "--", "true", code=113)[0] == ""
    assert [s["state"] for s in slices(machine)] == ["running"]
    done(as_nobody, "limit", "theirs", "--compute", "50%")
    assert slices(machine)[0]["devices"][0]["compute_limit_percent"] == 50
    assert done([], "logs", "theirs")[0] == "mine\n65534\n", "root may"
    done(as_nobody, "kill", "theirs")
    until("it has ended", lambda: not slices(machine))
    assert done(as_nobody, "logs", "theirs")[0] == "mine\n65534\n", "also afterwards"
    done(as_third, "logs", "theirs", code=12)
    done(as_nobody, "hypervisor", "--stop", code=15)


@pytest.mark.parametrize("options", [[], ["--no-namespace"]])
def test_no_hypervisor_starts_inside_a_slice(machine, folder, options):
    machine.hypervisor()
    inside = machine.start(*machine.program("run", "--vram", "1Gi", *options, "--"),
                           *machine.program("hypervisor", "--state", folder / "second"))
    assert inside.child.wait(PATIENCE_S) == 2
    machine.until_logged("this is inside the slice")


def test_a_shell_with_an_empty_environment_stays_in_its_slice(machine):
    machine.hypervisor()
    output, _ = machine.cli("run", "--vram", "1Gi", "--", "env", "-i", "/bin/sh", "-c",
                            "grep -c libtensor_fusion_limiter /proc/self/maps; [ -r /run/tensor-fusion/slice/grant ] && echo granted")
    lines = output.splitlines()
    assert int(lines[0]) > 0 and lines[1] == "granted"


def test_a_command_in_a_slice_says_where_it_is(machine):
    machine.hypervisor()
    program = machine.program()[0]
    for words in ("ps", "devices", "top --once", "events", "kill night", "--state /dev/shm/e2e-inner devices"):
        output, error = machine.cli("run", "--vram", "1Gi", "--name", "night", "--", "sh", "-c", f"{program} {words}; test $? = 2")
        assert "this is inside the slice `night`" in error and output == "", words
        until("its name is free again", lambda: not slices(machine))
    assert not os.path.exists("/dev/shm/e2e-inner")


def test_cards_that_were_named_otherwise_are_said_to_be_set_anew(machine):
    machine.hypervisor()
    for options, environment in (([], {"CUDA_VISIBLE_DEVICES": "1"}), (["-e", "CUDA_VISIBLE_DEVICES=1"], {})):
        output, error = machine.cli("run", "--gpu", "0", "--vram", "1Gi", *options, "--", "printenv", "CUDA_VISIBLE_DEVICES", environment=environment)
        assert output.startswith("GPU-") and "CUDA_VISIBLE_DEVICES=1 is set anew" in error
    assert "anew" not in machine.cli("run", "--vram", "1Gi", "--", "true")[1]


def test_a_slice_of_one_gpu_cannot_open_the_other(machine):
    machine.hypervisor()
    output, _ = machine.cli("run", "--gpu", "1", "--vram", "1Gi", "--", "sh", "-c",
                            'for n in 0 1; do (: <"$TENSOR_FUSION_SIM_DIR/nvidia$n") 2>/dev/null && echo open $n; done; true')
    assert output == "open 1\n"


@pytest.mark.parametrize("words,near", [(["limit", "nigth", "--vram", "2Gi"], "night"), (["kill", "nihgt"], "night"), (["logs", "nigt"], "night")])
def test_a_mistyped_name_is_answered_with_the_nearest(machine, words, near):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", near)
    _, error = machine.cli(*words, code=12)
    assert f"did you mean `{near}`?" in error


@pytest.mark.parametrize("limits", [["--vram", "500Gi"], ["--compute", "50%", "--compute-request", "60%"], []])
def test_a_limit_that_cannot_be_is_refused_and_changes_nothing(machine, limits):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--compute", "30%", "--name", "night")
    before = slices(machine)[0]["devices"]
    output, error = machine.cli("limit", "night", *limits, code=None)
    assert error.startswith("tensor-fusion: ")
    assert slices(machine)[0]["devices"] == before


def test_a_state_directory_that_cannot_be_made(machine, folder):
    (folder / "file").write_text("in the way")
    _, error = machine.cli("--state", folder / "file/state", "run", "--", "true", code=None)
    assert "file" in error and len(error.splitlines()) == 1


def test_the_demos_program_ends_when_its_slice_is_told_to(machine):
    pytest.importorskip("tinygrad")
    machine.hypervisor()
    output = machine.folder / "loss"
    training = machine.start(*machine.program("run", "--name", "night", "--vram", "2Gi", "--", sys.executable, ROOT / "tools/demo/train.py", output),
                             environment={"DEV": "CUDA:PTX", "CACHEDB": str(machine.folder / "kernels.db")})  # nothing compiled before
    until("it trains", lambda: training.child.poll() is not None or (output.exists() and output.read_text()), 100)
    machine.cli("kill", "night", code=None)  # on a busy machine its last step may take longer than that waits
    assert training.child.wait(PATIENCE_S) == 0
    until("nothing of it goes on", lambda: not slices(machine))

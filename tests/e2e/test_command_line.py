"""The command line on a whole machine: names, waiting, limits while running, logs, JSON everywhere, the live table."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from conftest import GIB, MIB, ROOT, until


def slices(machine):
    return machine.shown("ps")["slices"]


def sleeper(machine, *options, program=("sleep", "60")):
    """A program in a slice that does not touch the GPU."""
    def running():  # one that is only placed goes with its hypervisor
        return sum(s["state"] == "running" for s in slices(machine))
    known = running()
    process = machine.start(*machine.program("run", *options, "--", *program))
    until("the slice runs", lambda: running() > known or process.child.poll() is not None)
    assert process.child.poll() is None
    return process


def another_user(machine, folder):
    """What runs a command as another user beside a hypervisor of ours."""
    folder.chmod(0o755)
    machine.hypervisor()
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*as_nobody, *machine.program("version")], capture_output=True).returncode != 0:
        pytest.skip("another user cannot reach the build folder")
    return as_nobody


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


def test_ps_without_a_hypervisor_is_an_empty_list(machine):
    assert slices(machine) == []
    assert "run" in machine.cli("ps")[0]


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
    until("the share is free", lambda: not slices(machine), 2)
    machine.cli("run", "--gpu", "0", "--vram", "70Gi", "--compute", "100%", "--", "true")


def test_a_killed_run_takes_its_program_with_it_because_it_is_its_program(machine):
    machine.hypervisor()
    run = sleeper(machine, "--vram", "1Gi")
    until("the slice knows its process", lambda: slices(machine)[0]["pid"] == run.pid)
    until("the same process is the program", lambda: open(f"/proc/{run.pid}/comm").read().strip() == "sleep")


def test_wait_starts_the_program_when_the_slice_fits(machine):
    machine.hypervisor()
    first = sleeper(machine, "--compute", "80%", "--gpu", "0")
    waiting = machine.start(*machine.program("run", "--wait", "--compute", "50%", "--gpu", "0", "--", "sh", "-c", "echo '\"started\"'"))
    assert not select.select([waiting.child.stdout], [], [], 0.5)[0], "it must not start beside the first"
    first.kill()
    assert waiting.said() == "started"
    assert waiting.end() == 0


def test_a_waiting_run_that_is_interrupted_leaves_the_line(machine):
    machine.hypervisor()
    first = sleeper(machine, "--compute", "80%", "--gpu", "0")
    waiting = machine.start(*machine.program("run", "--wait", "--compute", "50%", "--gpu", "0", "--name", "late", "--", "sleep", "60"))
    machine.until_logged("waiting in line")
    waiting.kill(signal.SIGINT)
    first.kill()
    until("the first is gone", lambda: not slices(machine))
    machine.cli("run", "--compute", "80%", "--gpu", "0", "--", "true")


def test_kill_reaches_every_process_of_the_slice(machine):
    machine.hypervisor()
    tree = sleeper(machine, "--vram", "1Gi", "--name", "tree", program=("sh", "-c", "sleep 60 & sleep 60 & wait"))
    children = until("both children run", lambda: (pids := subprocess.run(["pgrep", "-P", str(tree.pid)], capture_output=True, text=True).stdout.split())
                     and len(pids) == 2 and pids)
    machine.cli("kill", "tree", "--signal", "KILL")
    assert tree.child.wait(10) == -signal.SIGKILL
    until("its children are gone", lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in children))


def test_kill_names_what_does_not_end(machine):
    machine.hypervisor()
    deaf = sleeper(machine, "--vram", "1Gi", "--name", "deaf", program=("sh", "-c", "trap '' TERM; echo '1'; while :; do sleep 1; done"))
    deaf.said()
    _, error = machine.cli("kill", "deaf", code=1)
    assert str(deaf.pid) in error and "kill -s KILL deaf" in error
    assert machine.cli("kill", "deaf", "-s", "USR2", "-o", "json", code=0)  # not meant to end it: nothing to wait for
    assert deaf.child.wait(10) == -signal.SIGUSR2
    polite = sleeper(machine, "--vram", "1Gi", "--name", "polite", program=("sh", "-c", "trap 'sleep 0.5; exit 0' TERM; echo '1'; while :; do sleep 0.1; done"))
    polite.said()
    assert machine.cli("kill", "polite") == ("", "")
    assert polite.child.poll() is not None or polite.child.wait(1) == 0


def test_logs_keep_what_a_detached_program_prints(machine):
    machine.hypervisor()
    assert machine.cli("run", "-d", "--name", "night", "--", "sh", "-c", "echo one; echo two >&2; sleep 60")[0] == "night\n"
    until("both lines are there", lambda: machine.cli("logs", "night")[0] == "one\ntwo\n")
    assert machine.cli("logs", "night", "--tail", "1")[0] == "two\n"
    follower = subprocess.Popen(machine.program("logs", "-f", "night"), env=machine.environment, stdout=subprocess.PIPE, text=True)
    machine.cli("kill", "night")
    assert follower.communicate(timeout=20)[0] == "one\ntwo\n", "following ends with the slice"
    assert machine.cli("logs", "night")[0] == "one\ntwo\n", "and the output outlives it"


@pytest.mark.parametrize("program,said", [("exit 3", "exit code was 3"), ("exit 0", "exit code was 0"), ("kill -9 $$", "ended by SIGKILL")])
def test_events_say_how_a_detached_program_ended(machine, program, said):
    machine.hypervisor()
    machine.cli("run", "-d", "--name", "night", "--", "sh", "-c", program)
    ended, = until("it has ended", lambda: [e for e in machine.shown("events", "-s", "night")["events"] if e["kind"] == "ended"])
    if said not in ended["message"]:
        assert ended["message"] == "its last process has ended" and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15)
        pytest.skip("its parent was faster, and this kernel remembers no exit status")


def test_logs_keep_the_newest_part_of_an_endless_output(machine):
    """The state directory is a file system in memory, for all users of the machine."""
    machine.hypervisor()
    machine.cli("run", "-d", "--name", "night", "--", "sh", "-c", "seq 5000000; echo done; exec sleep 600")
    log, = (machine.state / "logs").glob("*.log")
    until("it has printed", lambda: b"done" in log.read_bytes()[-10:])
    until("its front is cut", lambda: log.stat().st_blocks * 512 < 10 * MIB)
    lines = machine.cli("logs", "night")[0].splitlines()
    assert lines[-1] == "done" and lines[:-1] == [str(5000001 - n) for n in range(len(lines) - 1, 0, -1)]
    assert 7 * MIB < len("\n".join(lines)) < 10 * MIB
    assert machine.cli("logs", "night", "--tail", "2")[0] == "5000000\ndone\n"
    machine.cli("kill", "night")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file another user's")
def test_logs_of_another_user_do_nothing_to_a_terminal(machine):
    machine.hypervisor()
    machine.cli("run", "-d", "--name", "night", "--", "printf", r"one\033[2J\ntwo\n")
    until("it has printed", lambda: "two" in machine.cli("logs", "night")[0])
    assert machine.cli("logs", "night")[0] == "one\x1b[2J\ntwo\n", "a file gets it as it is"

    def shown():
        terminal = Terminal(machine, "logs", "night")
        assert terminal.end() == 0
        return terminal.seen

    assert shown() == b"one\x1b[2J\r\ntwo\r\n", "one's own may have colours"
    for log in (machine.state / "logs").glob("*.log"):
        os.chown(log, 65534, 65534)
    assert shown() == b"one?[2J\r\ntwo\r\n"


def test_logs_outlive_the_hypervisor_and_are_those_of_the_last_of_a_name(machine):
    hypervisor = machine.hypervisor()
    for word in ("first", "second"):
        machine.cli("run", "-d", "--name", "night", "--", "echo", word)
        until("it has ended", lambda: not slices(machine))
    assert machine.cli("logs", "night")[0] == "second\n"
    hypervisor.kill()
    assert machine.cli("logs", "night")[0] == "second\n"
    machine.hypervisor()
    assert machine.cli("logs", "night")[0] == "second\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machines_hypervisor_keeps_output_too(machine, folder):
    as_nobody = another_user(machine, folder)
    done = subprocess.run([*as_nobody, *machine.program("run", "-d", "--name", "theirs", "--", "sh", "-c", "id -u")],
                          env=machine.environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "theirs\n"), done.stderr
    until("it has printed", lambda: machine.cli("logs", "theirs")[0] == "65534\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_users_of_the_machines_hypervisor_reach_their_own_slices_and_no_others(machine, folder):
    as_nobody = another_user(machine, folder)
    as_third = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"]

    def done(user, *words, code=0):
        ended = subprocess.run([*user, *machine.program(*words)], env=machine.environment, capture_output=True, text=True, timeout=30)
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_run_of_another_user_waits_while_the_machines_hypervisor_is_replaced(machine, folder):
    as_nobody = another_user(machine, folder)
    machine.processes[0].kill()
    waiting = machine.start(*as_nobody, *machine.program("run", "--vram", "1Gi", "--", "sh", "-c", "exit 7"))
    machine.until_logged("waiting for a hypervisor")
    assert waiting.child.poll() is None
    machine.hypervisor()
    assert waiting.child.wait(30) == 7
    machine.processes[-1].kill()
    said = subprocess.run([*as_nobody, *machine.program("devices")], env=machine.environment, capture_output=True, text=True)
    assert said.returncode == 18 and "only the directory's owner may start one" in said.stderr


@pytest.mark.parametrize("options", [[], ["--no-namespace"]])
def test_no_hypervisor_starts_inside_a_slice(machine, folder, options):
    machine.hypervisor()
    inside = machine.start(*machine.program("run", "--vram", "1Gi", *options, "--"),
                           *machine.program("hypervisor", "--state", folder / "second"))
    assert inside.child.wait(30) == 2
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
    assert not os.path.exists("/dev/shm/e2e-inner")


def test_cards_that_were_named_otherwise_are_said_to_be_set_anew(machine):
    machine.hypervisor()
    for options, environment in (([], {"CUDA_VISIBLE_DEVICES": "1"}), (["-e", "CUDA_VISIBLE_DEVICES=1"], {})):
        output, error = machine.cli("run", "--gpu", "0", "--vram", "1Gi", *options, "--", "printenv", "CUDA_VISIBLE_DEVICES", environment=environment)
        assert output.startswith("GPU-") and "CUDA_VISIBLE_DEVICES=1 is set anew" in error
    assert "anew" not in machine.cli("run", "--vram", "1Gi", "--", "true")[1]


def test_a_hypervisor_that_does_not_answer_is_named_and_no_command_waits_long(machine):
    hypervisor = machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    os.kill(hypervisor.pid, signal.SIGSTOP)
    asked = {words: subprocess.Popen(machine.program(*words.split()), env=machine.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for words in ("ps", "run --vram 1Gi -- true", "limit night --compute 20%", "kill night other", "doctor", "hypervisor --stop")}
    try:
        for words, child in asked.items():  # all at once; on a quiet machine each takes 10 s
            output = child.communicate(timeout=19)[0]
            assert child.returncode == {"run": 118, "doctor": 1}.get(words.split()[0], 18), output
            assert f"`kill -9 {hypervisor.pid}` ends it" in output and f"pid {hypervisor.pid}" in output, words
            assert "hypervisor --stop" not in output
    finally:
        for child in asked.values():
            child.kill()
    hypervisor.kill()
    assert [s["name"] for s in slices(machine)] == ["night"], "slices go on"


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


class Terminal:
    """`tensor-fusion WORDS` in a terminal of its own; `seen` is what it drew since somebody last looked."""

    def __init__(self, machine, *words, program=None, columns=120, lines=24):
        self.child, self.fd = pty.fork()
        if self.child == 0:
            words = program or machine.program(*words)
            os.execvpe(words[0], words, {**machine.environment, "TERM": "xterm", "PS1": "% "})
        self.resize(columns, lines)
        self.seen = b""

    def resize(self, columns, lines):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self):
        try:
            if select.select([self.fd], [], [], 0.05)[0]:
                self.seen += os.read(self.fd, 65536)
        except OSError:  # the program has ended
            pass
        return self.seen

    def draws(self, *words):
        """Awaits that all of these were drawn, and forgets them."""
        until(f"{words} are drawn", lambda: all(word in self.read() for word in words))
        self.seen = b""

    def press(self, keys):
        os.write(self.fd, keys)

    def end(self):
        status = until("it ends", lambda: self.read() is not None and (got := os.waitpid(self.child, os.WNOHANG))[0] and got)[1]
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_top_draws_in_a_terminal_and_gives_it_back(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    top = Terminal(machine, "top", "--interval", "0.2")
    top.draws(b"night", b"H100")
    top.press(b"s")
    top.draws(b"compute used")
    top.press(b"jkp")
    top.draws(b"PAUSED")
    top.press(b"q")
    assert top.end() == 0
    assert b"\x1b[?1049l" in top.seen, "the screen that was there before is shown again"


def test_top_follows_the_size_of_its_terminal(machine):
    machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    top = Terminal(machine, "top", "--interval", "0.2")
    top.draws(b"night", b"H100", b"[....................]")
    top.resize(40, 10)
    top.draws(b"GPU 0  time   0%  memory")
    top.resize(80, 24)
    top.draws(b"H100", b"[......]")
    top.press(b"q")
    assert top.end() == 0


def test_top_is_ended_by_a_signal_as_any_program(machine):
    machine.hypervisor()
    top = Terminal(machine, "top", "--interval", "30")
    top.draws(b"H100")
    top.press(b"\x03")
    assert top.end() == -signal.SIGINT, "130 to a shell"
    assert b"\x1b[?1049l" in top.seen, "the screen that was there before is shown again"


def test_top_goes_on_when_the_hypervisor_comes_back(machine):
    first = machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    top = Terminal(machine, "top", "--interval", "0.2")
    top.draws(b"night")
    first.kill()
    top.draws(b"when one runs again")
    machine.hypervisor()
    top.draws(b"night")
    top.press(b"q")
    assert top.end() == 0


def test_top_hears_keys_while_the_hypervisor_is_stuck(machine):
    hypervisor = machine.hypervisor()
    sleeper(machine, "--vram", "1Gi", "--name", "night")
    top = Terminal(machine, "top", "--interval", "0.2")
    top.draws(b"night")
    os.kill(hypervisor.pid, signal.SIGSTOP)
    top.draws(b"has not answered for")
    top.press(b"p")
    until("the key is heard, long before the answer is given up", lambda: b"PAUSED" in top.read(), 2)
    top.press(b"q")
    begin = time.monotonic()
    assert top.end() == 0 and time.monotonic() - begin < 3
    os.kill(hypervisor.pid, signal.SIGCONT)


def test_a_program_in_a_slice_has_the_terminal_and_its_signals(machine):
    machine.hypervisor()
    program = 'trap "stty size" WINCH; tty >/dev/null && echo re""ady; while read -r line; do echo "got $line"; done; echo en""ded'
    shell = Terminal(machine, program=["bash", "--norc", "--noprofile", "-i"], columns=100, lines=30)
    shell.draws(b"% ")
    shell.press((" ".join(machine.program("run", "--vram", "1Gi", "--")) + f" bash -c '{program}'\n").encode())
    shell.draws(b"ready")
    shell.press(b"hello\n")
    shell.draws(b"got hello")
    shell.resize(90, 20)
    shell.press(b"\n")
    shell.draws(b"20 90")
    shell.press(b"\x1a")
    shell.draws(b"Stopped", b"% ")
    shell.press(b"fg\n")
    shell.press(b"again\n")
    shell.draws(b"got again")
    shell.press(b"\x04")
    shell.draws(b"ended", b"% ")
    shell.press(b"exit 7\n")
    assert shell.end() == 7


def test_a_program_ended_by_a_signal_shows_128_plus_it_to_a_shell(machine):
    machine.hypervisor()
    for name, number in (("INT", 2), ("TERM", 15), ("KILL", 9), ("SEGV", 11)):
        command = " ".join(machine.program("run", "--vram", "1Gi", "--")) + f" sh -c 'kill -{name} $$'"
        assert subprocess.run(["bash", "-c", f"{command}; exit $?"], env=machine.environment, capture_output=True).returncode == 128 + number


def test_top_without_a_terminal_says_what_to_use(machine):
    machine.hypervisor()
    _, error = machine.cli("top", code=2)
    assert "--once" in error


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
    assert training.child.wait(30) == 0
    until("nothing of it goes on", lambda: not slices(machine))

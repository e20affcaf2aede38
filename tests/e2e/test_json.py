"""`-o json` of every command: JSON, with the keys of docs/reference/json.md, neither fewer nor more."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from conftest import BUILD, PATIENCE_S, ROOT, until

PAGE = (ROOT / "docs/reference/json.md").read_text()
DOCUMENTED = {title: set(re.findall(r"^\| `([^`]+)` \|", body, re.M))
              for title, body in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)}
DOCUMENTED["top"] |= DOCUMENTED["ps"] | DOCUMENTED["devices"]
COMMANDS = [row["name"] for row in json.loads(subprocess.check_output([BUILD / "bin/tensor-fusion", "help", "-o", "json"]))["commands"]]


def keys_of(value, path=""):
    """The paths of all leaves: `a.b`, `list[].key`."""
    if isinstance(value, dict):
        return set().union(*(keys_of(inner, f"{path}.{key}" if path else key) for key, inner in value.items()), set())
    if isinstance(value, list):
        return set().union(*(keys_of(inner, f"{path}[]") for inner in value), set())
    return {path}


def empty_lists_of(value, path=""):
    if isinstance(value, dict):
        return set().union(*(empty_lists_of(inner, f"{path}.{key}" if path else key) for key, inner in value.items()), set())
    if isinstance(value, list):
        return set().union(*(empty_lists_of(inner, f"{path}[]") for inner in value), set()) if value else {f"{path}[]"}
    return set()


def compare(command, document):
    printed, documented = keys_of(document), DOCUMENTED[command]
    assert printed <= documented, f"printed but not in docs/reference/json.md: {sorted(printed - documented)}"
    unseen = {key for key in documented - printed if not any(key.startswith(empty) for empty in empty_lists_of(document))}
    assert not unseen, f"in docs/reference/json.md but not printed: {sorted(unseen)}"


def test_every_command_has_a_section():
    assert set(COMMANDS) - {"limit"} <= set(DOCUMENTED)  # limit prints what ps prints


def test_every_command_prints_what_the_page_says(machine):
    machine.hypervisor()
    stranger = machine.outside("wait")
    stranger.said(), stranger.said()
    tenant = machine.tenant(["wait"], "--vram", "1Gi", "--compute", "30%", "--name", "night")
    tenant.said(), tenant.said()
    until("the driver shows both", lambda: machine.shown("ps")["unlimited_processes"] and machine.shown("ps")["slices"][0]["processes"])
    seen = machine.shown("ps")
    assert not empty_lists_of(seen) - {"slices[].alarms[]"}, "every list of `ps` was looked into"
    compare("ps", seen)
    compare("ps", machine.shown("ps", "night"))
    compare("ps", machine.shown("limit", "night", "--compute", "40%"))
    compare("devices", machine.shown("devices"))
    compare("top", machine.shown("top"))
    compare("top", machine.shown("top", "--once"))
    compare("events", machine.shown("events"))
    compare("doctor", json.loads(machine.cli("doctor", "/bin/sh", "-o", "json", code=None)[0]))
    compare("version", machine.shown("version"))
    compare("help", machine.shown("help"))
    for shell in ("bash", "zsh", "fish"):
        compare("completion", machine.shown("completion", shell))
    compare("run", json.loads(machine.cli("-o", "json", "run", "-d", "--name", "second", "--", "echo", "one")[0]))
    until("it has printed", lambda: machine.cli("logs", "second")[0])
    compare("logs", machine.shown("logs", "second"))
    compare("kill", machine.shown("kill", "night"))
    assert isinstance(machine.shown("bench", "--list")["benchmarks"], list)
    compare("hypervisor", machine.shown("hypervisor", "--stop"))


@pytest.mark.parametrize("words,code", [
    (["ps", "nobody"], 12), (["run", "--vram", "0", "--", "true"], 2), (["run", "--vram", "500Gi", "--", "true"], 111),
    (["run", "--", "no-such-program"], 127), (["frobnicate"], 2), (["ps", "--frob"], 2), (["logs", "-f", "night"], 2),
], ids=lambda words: " ".join(words) if isinstance(words, list) else "")
def test_an_error_is_one_document_too(machine, words, code):
    output, error = machine.cli("-o", "json", *words, code=code)
    assert output == ""
    document = json.loads(error)
    compare("error", document)
    assert document["error"]["exit_code"] == code


def test_a_command_line_that_is_no_utf8_is_shown_all_the_same(machine):
    machine.hypervisor()
    odd = subprocess.Popen([os.fsencode(word) for word in machine.program("run", "--name", "odd", "--", "sh", "-c", "sleep 60 #")] + [b"\xff\x1b[31m"],
                           env=machine.environment)
    try:
        until("the slice runs", lambda: machine.shown("ps")["slices"])
        assert machine.shown("ps")["slices"][0]["command"].endswith("\ufffd\x1b[31m")
        assert "\ufffd?[31m" in machine.cli("ps")[0]
    finally:
        odd.kill()
        odd.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_bench_that_is_ended_leaves_neither_processes_nor_files(machine, number):
    for folder in ("bin", "bench"):
        (machine.folder / folder).mkdir()
    shutil.copy(BUILD / "bin/tensor-fusion", machine.folder / "bin")
    script = machine.folder / "bench/memory_bench"
    script.write_text("#!/bin/bash\ntrap '' INT TERM HUP\nmkdir $TENSOR_FUSION_SCRATCH/deep\n"
                      "setsid bash -c 'trap \"\" INT TERM HUP; sleep 600 & wait' >/dev/null & echo $! $TENSOR_FUSION_SCRATCH\nwait\n")
    script.chmod(0o755)
    bench = machine.start(machine.folder / "bin/tensor-fusion", "bench", "memory")
    pid, scratch = bench.child.stdout.readline().split()
    assert os.path.isdir(scratch)
    bench.child.send_signal(number)
    assert bench.child.wait(PATIENCE_S) == -number
    assert not os.path.exists(scratch)
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("status", [0, 1])
def test_bench_gives_the_last_line_of_each_and_fails_with_any(machine, status):
    for folder in ("bin", "bench"):
        (machine.folder / folder).mkdir()
    shutil.copy(BUILD / "bin/tensor-fusion", machine.folder / "bin")
    for name, code in (("limiter", 0), ("memory", status)):
        script = machine.folder / f"bench/{name}_bench"
        script.write_text(f"#!/bin/sh\necho measuring\necho 'bench {name}: figure=1'\nexit {code}\n")
        script.chmod(0o755)

    def bench(*words):
        done = subprocess.run([machine.folder / "bin/tensor-fusion", "bench", *words], env=machine.environment, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr
    assert bench("--list") == (0, "limiter\nmemory\n", "")
    code, output, _ = bench("limiter", "memory", "-o", "json")
    assert code == status
    compare("bench", json.loads(output))
    assert json.loads(output)["benchmarks"][1] == {"name": "memory", "exit_code": status, "result": "bench memory: figure=1"}
    (machine.folder / "bench/ptx_bench").touch(0o755)
    assert bench("--list")[1] == "limiter\nmemory\n", "only what the command takes"
    code, output, error = bench("memory")
    assert (code, output) == (status, "measuring\nbench memory: figure=1\n")
    assert "how exactly memory limits hold" in error
    code, _, error = bench("start")
    assert code == 12 and "`start` is not installed" in error

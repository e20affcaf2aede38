"""A state directory that is full, read-only, somebody else's or no directory is named in one clear sentence."""
import os
import subprocess

import pytest

from conftest import PATIENCE_S, until
from sentence import one_clear_sentence


def mounted(folder, options):
    """A small file system of its own, or a skipped test."""
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True).returncode != 0:
        pytest.skip("only who may mount can make such a folder")
    return folder


@pytest.mark.parametrize("options,code,mentioned", [("ro", 17, "writable"), ("size=64k", 16, "free some space")], ids=["read-only", "full"])
def test_a_state_directory_that_is_full_or_read_only(machine, folder, options, code, mentioned):
    state = mounted(folder / "mount", options)
    try:
        if options != "ro":
            with open(state / "filler", "wb", buffering=0) as filler:
                with pytest.raises(OSError):
                    while filler.write(bytes(4096)):
                        pass
        for words, expected in ((["hypervisor"], code), (["run", "--", "true"], 100 + code)):
            _, error = machine.cli("--state", state / "state", *words, code=expected)
            assert mentioned in error and "--state" in error
            one_clear_sentence(error)
        output = machine.cli("--state", state / "state", "doctor", code=1)[0]
        assert "STOP  state" in output and (options == "ro" or "a slice needs about" in output)
    finally:
        subprocess.run(["umount", "-l", state], check=True)


def test_a_state_directory_that_is_nearly_full(machine, folder):
    """A slice's pages are there in full before its program starts: it never ends for a page that found no room."""
    small = mounted(folder / "mount", "size=10m")
    try:
        state = ("--state", small / "state")
        tenant = machine.start(*machine.program(*state, "run", "--name", "night", "--vram", "1Gi", "--compute", "20%", "--", "cat"))
        until("the slice runs", lambda: (small / "state").exists() and [s["name"] for s in machine.shown(*state, "ps")["slices"]] == ["night"])
        for words in (["run", "--", "/bin/echo", "started"], ["run", "-d", "--", "/bin/echo", "started"]):
            output, error = machine.cli(*state, *words, code=116)
            assert output == "" and "free some space: a slice needs about" in error
            one_clear_sentence(error)
        with open(small / "filler", "wb", buffering=0) as filler:
            with pytest.raises(OSError):
                while filler.write(bytes(4096)):
                    pass
        _, error = machine.cli(*state, "limit", "night", "--compute", "50%", code=16)
        assert "free some space" in error
        one_clear_sentence(error)
        assert machine.shown(*state, "ps")["slices"][0]["devices"][0]["compute_limit_percent"] == 20
        (small / "filler").unlink()
        machine.cli(*state, "limit", "night", "--compute", "50%")
        tenant.end()
        until("its pages are given back", lambda: machine.cli(*state, "run", "--", "/bin/echo", "started", code=None)[0] == "started\n")
        machine.cli(*state, "hypervisor", "--stop")
    finally:
        subprocess.run(["umount", "-l", small], check=True)


# what is made in a folder of its own, the state directory in it, what the answer names
STATES = [
    (lambda at: (at / "file").write_text("x"), "file", "/file is not a directory"),
    (lambda at: (at / "file").write_text("x"), "file/state", "/file is not a directory"),
    (lambda at: (at / "gone").symlink_to("nowhere"), "gone", "/gone is a link to something"),
    (lambda at: (at / "gone").symlink_to("nowhere"), "gone/state", "/gone is a link to something"),
    (lambda at: (at / "loop").symlink_to("loop"), "loop", "leads back to itself"),
    (lambda at: None, "x" * 200, "too long for a socket"),
    (lambda at: None, "x" * 300, "too long"),
    (lambda at: (at / "s/hypervisor.lock").mkdir(parents=True), "s", "hypervisor.lock is in the way"),
    (lambda at: (at / "s/hypervisor.log").mkdir(parents=True), "s", "hypervisor.log is in the way"),
    (lambda at: (at / "s/hypervisor.sock").mkdir(parents=True), "s", "hypervisor.sock is in the way"),
    (lambda at: [(at / "s").mkdir(), (at / "s/records").write_text("x")], "s", "records is not a directory"),
    (lambda at: [(at / "s").mkdir(), (at / "s/logs").symlink_to("nowhere")], "s", "logs is a link to something"),
    (lambda at: [(at / "s/tenants/acme/db").mkdir(parents=True), (at / "s/tenants/acme/db/data.sql").write_text("1")], "s", "holds other files, such as"),
    (lambda at: [(at / "s/records").mkdir(parents=True), (at / "s/records/customers.csv").write_text("2")], "s", "records/customers.csv"),
]


@pytest.mark.parametrize("make,state,mentioned", STATES, ids=[f"{row[1][:12]}-{row[2][-20:]}" for row in STATES])
def test_a_state_directory_that_is_none(machine, folder, make, state, mentioned):
    make(folder)
    for words in (["run", "--", "true"], ["hypervisor"], ["hypervisor", "--stop"], ["ps"], ["devices"], ["events"],
                  ["limit", "night", "--vram", "1Gi"], ["kill", "night"], ["logs", "night"], ["top", "--once"]):
        _, error = machine.cli("--state", folder / state, *words, code=2)
        assert mentioned in error and "--state" in error, words
        one_clear_sentence(error)
    assert mentioned in machine.cli("--state", folder / state, "doctor", code=1)[0]


@pytest.mark.parametrize("place", ["/", "/etc"])
def test_a_folder_of_the_system_is_no_state_directory(machine, place):
    before = sorted(os.listdir(place))
    _, error = machine.cli("--state", place, "devices", code=2)
    assert "holds other files, such as /" in error and "choose another directory with --state" in error
    one_clear_sentence(error)
    assert sorted(os.listdir(place)) == before


def test_files_of_others_stay(machine, folder):
    theirs = [folder / "p/tenants/acme/db/deep/data.sql", folder / "p/records/customers.csv"]
    for file in theirs:
        file.parent.mkdir(parents=True)
        file.write_text("theirs")
    machine.cli("--state", folder / "p", "devices", code=2)
    assert all(file.read_text() == "theirs" for file in theirs)
    assert sorted(file.name for file in (folder / "p").iterdir()) == ["records", "tenants"]


def test_a_state_directory_whose_parents_are_not_there_yet_is_made(machine, folder):
    machine.cli("--state", folder / "one/two/three", "run", "--", "true")
    machine.cli("--state", folder / "one/two/three", "hypervisor", "--stop")


def test_a_state_directory_may_be_named_from_the_present_folder(machine, folder):
    """The hypervisor that `run` started worked in the root folder, and looked for it there."""
    done = subprocess.run(machine.program("--state", "here", "run", "--", "true"), env=machine.environment, cwd=folder,
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert (folder / "here/hypervisor.sock").is_socket() and not os.path.exists("/here")
    machine.cli("--state", folder / "here", "hypervisor", "--stop")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_state_directory_that_may_not_be_written(machine, folder):
    folder.chmod(0o755)
    (folder / "theirs").mkdir(mode=0o700)
    (folder / "sim").mkdir()
    (folder / "sim").chmod(0o777)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*as_nobody, *machine.program("version")], capture_output=True).returncode != 0:
        pytest.skip("another user cannot reach the build folder")
    for state in (folder / "theirs", folder / "theirs/deeper", folder / "new"):
        for words, code in ((["run", "--", "true"], 115), (["hypervisor"], 15)):
            done = subprocess.run([*as_nobody, *machine.program("--state", state, *words)], env=machine.environment,
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            assert done.returncode == code, done.stderr
            assert "--state" in done.stderr
            one_clear_sentence(done.stderr)

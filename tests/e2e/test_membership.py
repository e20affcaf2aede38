"""Whose process is it: programs that leave their parents, and those that would rather be nobody's."""
import os
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, PATIENCE_S, TENANT, until

# Leaves everything behind as a daemon does, then goes on in a shell's place.
DAEMON = """
import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execvp("sleep", ["sleep", "1000"])
"""

# Each forks the next and exits.
CHAIN = """
import os, time
end = time.monotonic() + 100
while time.monotonic() < end:
    if os.fork(): os._exit(0)
"""


def slices(machine):
    return {s["name"]: s["state"] for s in machine.shown("ps")["slices"]}


def run(machine, name, program):
    """Until the first process has ended; what it leaves behind goes on."""
    command = machine.program("run", "--name", name, "--vram", "1Gi", "--compute", "1%", "--", sys.executable, "-c", program)
    assert machine.start(*command).child.wait(PATIENCE_S) == 0


def test_no_program_that_becomes_a_daemon_loses_its_slice(machine):
    machine.hypervisor()
    names = [f"d{i}" for i in range(20)]
    for name in names:
        run(machine, name, DAEMON)
    until("all go on without their first process", lambda: slices(machine) == dict.fromkeys(names, "detached"))
    assert "its last process has ended" not in machine.cli("events")[0]
    machine.cli("kill", *names, "--signal", "KILL")
    until("their slices have ended with them", lambda: not slices(machine))


def test_a_killed_slice_leaves_nobody_though_each_process_forks_the_next_and_exits(machine):
    machine.hypervisor()
    run(machine, "chain", CHAIN)
    until("it goes on without its first process", lambda: slices(machine) == {"chain": "detached"})
    machine.cli("kill", "chain", "--signal", "KILL", code=None)
    until("nobody is left", lambda: not slices(machine))


# Makes user and mount namespaces of its own, covers the list that brings the limiter, and goes on as a daemon. "cover": and
# covers what shows the slice. "leave": and makes itself another root, with what it needs, and drops the old one. "chroot": and
# goes below such a root.
ESCAPE = """
import ctypes, os, shutil, sys
libc = ctypes.CDLL(None, use_errno=True)
user, group = os.getuid(), os.getgid()
if libc.unshare(0x10000000 | 0x00020000) != 0:
    sys.exit(77)
for name, text in ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
if libc.mount(b"/dev/null", b"/etc/ld.so.preload", None, 4096, None) != 0:
    sys.exit(78)
if "cover" in sys.argv[1] and libc.mount(b"none", b"/run/tensor-fusion", b"tmpfs", 0, None) != 0:
    sys.exit(79)
if sys.argv[1] in ("leave", "chroot"):
    def check(done):
        if done != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    root, program, sim = "/mnt", sys.argv[3], os.environ["TENSOR_FUSION_SIM_DIR"]
    check(libc.mount(b"none", root.encode(), b"tmpfs", 0, None))
    def show(path, make, flags=4096):
        make(root + path)
        return libc.mount(path.encode(), (root + path).encode(), None, flags, None)
    for folder in "/usr", "/lib", "/lib64", os.path.dirname(os.environ["TENANT_LIBCUDA"]):
        if os.path.islink(folder):
            os.symlink(os.readlink(folder), root + folder)
        else:
            check(show(folder, os.makedirs))
    check(show("/proc", os.makedirs, 4096 | 16384))
    os.makedirs(root + sim)
    for name in os.listdir(sim):
        show(f"{sim}/{name}", lambda path: open(path, "w").close())
    shutil.copy(program, root + program)
    os.mkdir(root + "/old")
    os.chdir(root)
    if sys.argv[1] == "chroot":
        os.chroot(root)
    else:
        check(libc.syscall(155, b".", b"old"))
        check(libc.umount2(b"old", 2))
    os.chdir("/")
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
kept = {name: os.environ[name] for name in ("TENANT_LIBCUDA", "TENSOR_FUSION_SIM", "TENSOR_FUSION_SIM_DIR", "LD_LIBRARY_PATH")}
os.execve(sys.argv[2], sys.argv[2:], kept)
"""


def escape(machine, how, user=0, program=None):
    """Runs it in a slice, and then the program (one that allocates) in its place; returns what is told of that, and lets go of it."""
    if user and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    machine.hypervisor()
    machine.folder.chmod(0o755)
    program = program or ["/usr/bin/python3", shutil.copy(TENANT, machine.folder), "alloc:1048576", "wait"]
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    if subprocess.run([*become, *machine.program("version")], env=machine.environment, capture_output=True).returncode != 0:
        pytest.skip("another user cannot reach the build folder")
    process = machine.start(*become, *machine.program("run", "--name", "runaway", "--vram", "1Gi", "--compute", "1%", "--",
                                                      "/usr/bin/python3", "-c", ESCAPE, how, *program))
    code = process.child.wait(PATIENCE_S)
    if code == 77:
        pytest.skip("no user namespace can be made in a slice here")
    assert code == 0

    def told():
        return [event for event in machine.shown("events")["events"] if event["kind"] == "unlimited"]

    until("it is seen", told)
    process.child.stdin.close()
    until("nothing of it is left", lambda: not slices(machine) and not machine.shown("ps")["unlimited_processes"])
    return told()[0]


@pytest.mark.parametrize("how", ["bind", "cover"])
@pytest.mark.parametrize("user", [0, 65534])
def test_who_leaves_its_view_for_one_made_within_it_is_known_and_ended(machine, how, user):
    event = escape(machine, how, user)
    assert event["slice"] == "runaway" and "was ended" in event["message"]


@pytest.mark.parametrize("how", ["leave", "chroot"])
def test_who_shows_no_mount_of_its_view_any_more_is_seen(machine, how):
    assert "uses the GPU without a live limiter" in escape(machine, how)["message"], "as a stranger"


def test_who_takes_a_slot_without_a_limiter_is_ended_as_who_takes_none(machine):
    event = escape(machine, "bind", program=[BUILD / "programs/forge_slot", "/run/tensor-fusion/slice/claim"])
    assert event["slice"] == "runaway" and "was ended" in event["message"]

"""What cannot be done is answered with one clear sentence and a documented exit code, and nothing is started."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from conftest import BUILD, PATIENCE_S, ROOT, Machine, until
from sentence import one_clear_sentence

# arguments of `run` before the program, what the answer must mention, exit code
REFUSED = [
    (["--vram", "0"], "'0'", 2),
    (["--vram", "-1Gi"], "-1Gi", 2),
    (["--vram", "nan"], "nan", 2),
    (["--vram", "inf"], "inf", 2),
    (["--vram", "8Gx"], "8Gx", 2),
    (["--vram", "120%"], "the most is 100%", 2),
    (["--vram", "99999999999Gi"], "more memory than can be counted", 2),
    (["--vram", "1"], "did you mean `1Gi`?", 2),
    (["--vram", "8Mi"], "the least is 16Mi", 2),
    (["--vram", "500Gi"], "500", 111),
    (["--vram", "100Gi"], "the card has 79.6Gi; ask for less", 111),
    (["--vram", "2Q"], "write it like 8Gi", 2),
    (["--mem", "2Gi"], "did you mean `--vram`?", 2),
    (["--compute", "0"], "ask for more than 0", 2),
    (["--compute", "0.3"], "did you mean 30%?", 2),
    (["--compute", "0%"], "the least is 0.01%", 2),
    (["--compute", "101%"], "101", 2),
    (["--compute", "140%"], "the most is 100%", 2),
    (["--compute", "NaN%"], "NaN", 2),
    (["--compute", "-5%"], "-5%", 2),
    (["--compute", "40"], "write 40%", 2),
    (["--compute", "1e2%"], "write it like 40%", 2),
    (["--compute", "99999tflops"], "989TFLOPS", 111),
    (["--compute", "20gflops"], "less than 0.01%", 111),
    (["--compute", "0.01%"], "too little to open a GPU", 111),
    (["--compute", "20%", "--compute-request", "30%"], "30", 2),
    (["--compute", "1%", "--compute-request", "30tflops"], "above the limit of 1%", 111),
    (["--gpu", "97"], "there are 0, 1; `tensor-fusion devices` lists them", 2),
    (["--gpu", "GPU-00000000-dead-beef-0000-000000000000"], "dead-beef", 2),
    (["--gpu", "0", "--gpu", "0"], "twice", 2),
    (["--gpu", "GPU-"], "several", 2),
    (["--gpu", "0", "--gpus", "2"], "2 devices asked, but 1 named", 2),
    (["--gpus", "0"], "from 1 to 16", 2),
    (["--gpus", "99"], "from 1 to 16", 2),
    (["--gpus", "9"], "9", 111),
    (["--qos", "urgent"], "low, medium, high, critical", 2),
    (["--vrma", "2Gi"], "--vram", 2),
    (["--name", "a/b"], "letters, digits", 2),
    (["--name", "../x"], "begins with", 2),
    (["--name", "one\ntwo"], "letters, digits", 2),
    (["--name", "😀"], "begins with", 2),
    (["--name", "a" * 4096], "63 letters", 2),
    (["--env", "=x"], "NAME=VALUE", 2),
    (["--env", ""], "NAME=VALUE", 2),
    (["--wait=soon"], "takes no value", 2),
]


@pytest.fixture(scope="module")
def shared():
    """One machine with a hypervisor for all that is refused before anything changes."""
    folder = pathlib.Path("/dev/shm") / f"e2e-bad-{os.getpid()}"
    folder.mkdir()
    made = Machine(folder)
    made.hypervisor()
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("arguments,mentioned,code", REFUSED, ids=[" ".join(row[0])[:40] for row in REFUSED])
def test_run_refuses(shared, arguments, mentioned, code):
    output, error = shared.cli("run", *arguments, "--", "/bin/echo", "started", code=code)
    assert "started" not in output
    assert mentioned in error, error
    one_clear_sentence(error, 3)  # the reason for each card, a line each
    assert shared.shown("ps")["slices"] == []


@pytest.mark.parametrize("words,mentioned", [
    (["devcies"], "did you mean `devices`?"),
    (["list"], "`tensor-fusion ps`"),
    (["stop"], "`tensor-fusion kill NAME` ends a slice, `tensor-fusion hypervisor --stop`"),
    ([], "tensor-fusion help"),
    (["--frob"], "tensor-fusion help"),
    (["run"], "PROGRAM"),
    (["ps", "-o", "jsno"], "did you mean `json`?"),
    (["limit", "night"], "--vram, --compute or --compute-request"),
    (["limit", "night", "--vram", "1"], "did you mean `1Gi`?"),
    (["kill", "night", "--signal", "TREM"], "did you mean `TERM`?"),
    (["kill", "night", "--signal", "FROB"], "TERM, KILL, INT"),
    (["kill", "night", "--signal", "99"], "from 1 to 64"),
    (["kill", "-9", "night"], "write `-s KILL`"),
    (["kill", "night", "-HUP"], "write `-s HUP`"),
    (["logs", "night", "--tail", "0"], "from 1 to"),
    (["events", "--tail", "-5"], "from 1 to"),
    (["top", "--interval", "0"], "from 0.2 to 60"),
    (["bench", "memroy"], "did you mean `memory`?"),
    (["completion", "tcsh"], "bash, zsh, fish"),
    (["no\nsuch\x1b[31m"], "no?such?[31m"),
])
def test_a_line_that_means_nothing(shared, words, mentioned):
    _, error = shared.cli(*words, code=2)
    assert mentioned in error, error
    one_clear_sentence(error)


def test_a_program_that_does_not_exist(shared):
    _, error = shared.cli("run", "--vram", "1Gi", "--", "/no/such/program", code=127)
    assert "/no/such/program" in error
    for name in ("no-such-program", ""):
        one_clear_sentence(shared.cli("run", "--", name, code=127)[1])


@pytest.mark.parametrize("content,mode,mentioned", [
    ("hello", 0o755, "neither a program"),
    ("", 0o755, "neither a program"),
    ("#!/no/such/interpreter\n", 0o755, "/no/such/interpreter"),
    ("hello", 0o644, "chmod"),
    (None, 0o755, "is a folder"),
], ids=["text", "empty", "interpreter gone", "not executable", "folder"])
def test_a_file_that_cannot_be_executed(shared, folder, content, mode, mentioned):
    file = folder / "file"
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
        file.chmod(mode)
    _, error = shared.cli("run", "--vram", "1Gi", "--", file, code=126)
    assert mentioned in error
    one_clear_sentence(error)


def test_a_program_whose_copy_broke_off(shared, folder):
    whole = pathlib.Path("/bin/sh").read_bytes()
    (folder / "cut").write_bytes(whole[:len(whole) // 2])
    (folder / "cut").chmod(0o755)
    _, error = shared.cli("run", "--", folder / "cut", code=126)
    assert "not a complete program file" in error
    one_clear_sentence(error)


@pytest.mark.parametrize("compiler,flags,mentioned", [
    ("cc", ["-static"], "statically linked"),
    ("cc", ["-static-pie"], "statically linked"),
    ("musl-gcc", [], "musl"),
    ("musl-gcc", ["-static"], "statically linked"),
    ("aarch64-linux-gnu-gcc", [], "another processor"),
], ids=["static", "static-pie", "musl", "musl-static", "arm64"])
def test_a_program_into_which_the_limiter_cannot_be_loaded(shared, folder, compiler, flags, mentioned):
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler} here")
    (folder / "program.c").write_text('#include <stdio.h>\nint main(void) { return puts("started") < 0; }\n')
    if subprocess.run([compiler, *flags, "-o", folder / "program", folder / "program.c"], capture_output=True).returncode != 0:
        pytest.skip(f"{compiler} {' '.join(flags)} cannot link here")
    output, error = shared.cli("run", "--", folder / "program", code=121)
    assert mentioned in error and "--allow-unlimited" in error and output == ""
    one_clear_sentence(error)
    output, _ = shared.cli("doctor", folder / "program", code=1)
    assert mentioned in output
    if flags:
        output, error = shared.cli("run", "--allow-unlimited", "--", folder / "program")
        assert output == "started\n" and "not limited" in error


def test_a_program_that_brings_a_c_library_too_old_for_the_limiter(shared, folder):
    if not shutil.which("cc") or not os.path.exists("/lib64/ld-linux-x86-64.so.2"):
        pytest.skip("needs cc and the loader of x86-64")
    loader = folder / "ld-linux-x86-64.so.2"
    shutil.copy("/lib64/ld-linux-x86-64.so.2", loader)
    (folder / "libc.so.6").write_bytes(b"\x7fELF\0GLIBC_2.2.5\0GLIBC_2.12\0GLIBC_PRIVATE\0")
    (folder / "program.c").write_text('#include <stdio.h>\nint main(void) { return puts("started") < 0; }\n')
    subprocess.run(["cc", f"-Wl,--dynamic-linker={loader}", "-o", folder / "program", folder / "program.c"], check=True)
    output, error = shared.cli("run", "--", folder / "program", code=121)
    assert "runs on glibc 2.12, and the limiter needs 2." in error and "--allow-unlimited" in error and output == ""
    one_clear_sentence(error)
    assert "glibc 2.12" in shared.cli("doctor", folder / "program", code=1)[0]


# No C library for 32 bits is needed to make such a program: it only has to start.
@pytest.mark.parametrize("flags", [["-static"], ["-fpie", "-pie", "-Wl,--dynamic-linker=/lib/ld-linux.so.2"]],
                         ids=["static", "dynamic"])
def test_a_program_of_32_bits(shared, folder, flags):
    if os.uname().machine != "x86_64" or not shutil.which("cc"):
        pytest.skip("needs cc on x86-64")
    (folder / "program.c").write_text('void _start(void) { __asm__("movl $1, %eax; xorl %ebx, %ebx; int $0x80"); }\n')
    made = subprocess.run(["cc", "-m32", "-nostdlib", "-nostartfiles", *flags, "-o", folder / "program",
                           folder / "program.c"], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"cc makes no 32-bit programs here: {made.stderr.strip().splitlines()[-1]}")
    assert (folder / "program").read_bytes()[4] == 1  # ELFCLASS32
    output, error = shared.cli("run", "--", folder / "program", code=121)
    assert "32-bit" in error and output == ""
    one_clear_sentence(error)


@pytest.mark.parametrize("library,mentioned", [
    ("/no/such/limiter.so", "/no/such/limiter.so"),
    ("/etc", "/etc"),
    (str(BUILD / "sim/libnvidia-ml.so.1"), "some other file"),
    (str(BUILD / "bin/tensor-fusion"), "some other file"),
    (str(BUILD / "lib/arm64/libtensor_fusion_limiter.so"), "another processor"),
], ids=["missing", "folder", "other library", "this program", "arm64"])
def test_a_limiter_that_is_none(shared, library, mentioned):
    if "arm64" in library and not os.path.exists(library):
        pytest.skip("the limiter for arm64 is not built here")
    environment = {"TENSOR_FUSION_LIMITER": library}
    output, error = shared.cli("run", "--", "/bin/echo", "started", code=121, environment=environment)
    assert mentioned in error and "unset TENSOR_FUSION_LIMITER" in error and output == ""
    one_clear_sentence(error)
    assert mentioned in shared.cli("doctor", code=1, environment=environment)[0]


def test_an_installation_without_its_limiter(shared, folder):
    (folder / "bin").mkdir()
    shutil.copy(BUILD / "bin/tensor-fusion", folder / "bin")
    done = subprocess.run([folder / "bin/tensor-fusion", "run", "--", "/bin/echo", "started"], env=shared.environment,
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (121, "")
    assert f"{folder}/lib/tensor-fusion/libtensor_fusion_limiter.so" in done.stderr
    one_clear_sentence(done.stderr)


@pytest.mark.parametrize("description,mentioned", [
    ("garbage", "there is no card 'garbage'"),
    ("2x", "path of a YAML file"),
    ("0xh100", "1 to 16"),
    ("h100;sped=2", "did you mean 'speed'"),
    ("/no/such.yaml", "/no/such.yaml"),
])
def test_a_simulated_machine_that_cannot_be(machine, description, mentioned):
    wrong = {"TENSOR_FUSION_SIM": description}
    for words, code in ((["run", "--", "true"], 119), (["devices"], 19), (["top", "--once"], 19)):
        _, error = machine.cli(*words, code=code, environment=wrong)
        assert mentioned in error and "TENSOR_FUSION_SIM" in error
        one_clear_sentence(error)
    output, _ = machine.cli("doctor", code=1, environment=wrong)
    assert mentioned in output
    machine.cli("run", "--vram", "1Gi", "--", "true")  # nothing that was started with the mistake is left


def test_a_machine_without_a_driver(machine):
    without = {"LD_LIBRARY_PATH": ""}
    if machine.cli("doctor", code=None, environment={**without, "TENSOR_FUSION_SIM": ""})[1].find("libnvidia-ml.so.1:") < 0 \
            and os.path.exists("/dev/nvidia0"):
        pytest.skip("this machine has a driver of its own")
    _, error = machine.cli("run", "--", "true", code=119, environment=without)
    assert "libnvidia-ml.so.1" in error and "LD_LIBRARY_PATH" in error
    one_clear_sentence(error)
    machine.cli("run", "--vram", "1Gi", "--", "true")


def test_another_machine_than_the_one_in_use(machine):
    machine.hypervisor()
    assert machine.shown("devices")["devices"], "the machine is made by whoever comes first"
    output, _ = machine.cli("doctor", code=1, environment={"TENSOR_FUSION_SIM": "t4"})
    assert "in use" in output and "TENSOR_FUSION_SIM_DIR" in output
    assert "STOP  simulated machine" in output and "tensor-fusion hypervisor --stop" in output
    _, error = machine.cli("devices", environment={"TENSOR_FUSION_SIM": "t4"})
    assert "TENSOR_FUSION_SIM=t4 is not what the hypervisor" in error and "hypervisor --stop" in error
    one_clear_sentence(error)
    assert machine.cli("devices")[1] == ""


def test_a_machine_that_was_removed_under_the_hypervisor(machine):
    machine.hypervisor()
    assert machine.shown("devices")["devices"]
    shutil.rmtree(machine.folder / "sim")
    output, _ = machine.cli("doctor", code=1)
    assert "STOP  simulated machine" in output and "was removed while the hypervisor uses it" in output
    assert "tensor-fusion hypervisor --stop" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_machine_of_another_user(machine, folder):
    folder.chmod(0o755)
    (folder / "theirs").mkdir(mode=0o700)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*as_nobody, *machine.program("version")], capture_output=True).returncode != 0:
        pytest.skip("another user cannot reach the build folder")
    done = subprocess.run([*as_nobody, *machine.program("--state", "/tmp/tensor-fusion-none", "doctor")], capture_output=True, text=True,
                          env={**machine.environment, "TENSOR_FUSION_SIM_DIR": str(folder / "theirs")}, timeout=PATIENCE_S)
    assert "choose another TENSOR_FUSION_SIM_DIR, or give this user rights on this one" in done.stdout, done.stdout
    assert "install the GPU's driver" not in done.stdout.split("STOP  NVML")[1].split("STOP")[0]


def test_a_name_that_is_taken(machine):
    machine.hypervisor()
    tenant = machine.tenant(["wait"], "--vram", "1Gi", "--name", "night")
    tenant.said()
    tenant.said()
    _, error = machine.cli("run", "--name", "night", "--vram", "1Gi", "--", "/bin/true", code=113)
    assert "a slice named `night`" in error and "--name" in error
    one_clear_sentence(error)
    tenant.end()


def test_the_script_names_the_word_that_was_meant():
    done = subprocess.run([ROOT / "dev", "tset"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("dev: there is no 'tset'; did you mean 'test'?\n")
    assert "did you mean" not in subprocess.run([ROOT / "dev", "xyzzy"], capture_output=True, text=True).stderr


def test_a_slice_that_does_not_exist(shared):
    for arguments in (["limit", "nobody", "--vram", "1Gi"], ["kill", "nobody"], ["logs", "nobody"], ["ps", "nobody"]):
        _, error = shared.cli(*arguments, code=12)
        assert "nobody" in error
        one_clear_sentence(error)
    assert "`nobody`" in shared.cli("events", "--slice", "nobody", code=12)[1]


def test_a_slice_that_does_not_exist_where_no_hypervisor_runs(machine):
    for arguments in (["limit", "nobody", "--vram", "1Gi"], ["kill", "nobody"], ["logs", "nobody"], ["ps", "nobody"]):
        _, error = machine.cli(*arguments, code=12)
        assert "nobody" in error
        one_clear_sentence(error)


@pytest.mark.parametrize("library,mentioned", [
    ("/no/such/provider.so", "No such file"),
    ("/etc", "/etc"),
    ("/etc/passwd", "/etc/passwd"),
    (str(BUILD / "sim/libcuda.so.1"), "has no function AccelInit"),
    (None, "crashes when it is loaded"),
], ids=["missing", "folder", "text", "other library", "crashes"])
def test_a_provider_that_is_none(machine, folder, library, mentioned):
    if library is None:
        library = folder / "provider.so"
        (folder / "provider.c").write_text("#include <stdlib.h>\n__attribute__((constructor)) static void begin(void) { abort(); }\n")
        if subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "provider.c"], capture_output=True).returncode != 0:
            pytest.skip("there is no cc here")
    _, error = machine.cli("hypervisor", "--accelerator-lib", library, code=19)
    assert mentioned in error and "--accelerator-lib" in error
    one_clear_sentence(error)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_what_belongs_to_another_user(machine, folder):
    folder.chmod(0o755)
    machine.hypervisor()
    process = machine.start(*machine.program("run", "--name", "night", "--", "sleep", "60"))
    until("the slice runs", lambda: machine.shown("ps")["slices"])

    def as_nobody(*words):
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *machine.program(*words)],
                              env=machine.environment, capture_output=True, text=True)
        one_clear_sentence(done.stderr)
        return done.returncode, done.stderr

    if subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *machine.program("version")]).returncode != 0:
        pytest.skip("another user cannot reach the build folder")
    for words in (["limit", "night", "--compute", "50%"], ["kill", "night"], ["logs", "night"]):
        code, error = as_nobody(*words)
        assert code == 15 and "`night` belongs to another user" in error
    code, error = as_nobody("hypervisor")
    assert code == 15 and "--state" in error
    assert process.child.poll() is None


def test_a_second_hypervisor(machine):
    first = machine.hypervisor()
    _, error = machine.cli("hypervisor", code=14)
    assert str(first.pid) in error and "--state" in error
    one_clear_sentence(error)


def test_a_slice_in_a_slice(shared):
    _, error = shared.cli("run", "--", *shared.program("run", "--", "true"), code=2)
    assert "already runs in the slice" in error
    inner = ["env", "-u", "TENSOR_FUSION_SLICE", *shared.program("run", "--", "true")]
    _, error = shared.cli("run", "--no-namespace", "--name", "outer", "--", "/bin/sh", "-c", shlex.join(inner) + "; exit $?", code=2)
    assert "already runs in the slice `outer`; start the program directly" in error


def test_every_exit_code_of_these_files_is_in_the_reference():
    reference = (ROOT / "docs/reference/command-line.md").read_text()
    documented = {int(number) for row in re.findall(r"^\| ([\d, ]+) \|", reference, re.M) for number in row.split(",")}
    ours = "".join(pathlib.Path(__file__).with_name(name).read_text() for name in ("test_bad_input.py", "test_bad_state.py"))
    used = {int(number) for number in re.findall(r"code=(\d+)|, (\d+)\),$", ours, re.M) for number in number if number}
    assert used <= documented, used - documented
    assert len(used) > 8

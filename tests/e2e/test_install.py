"""What `cmake --install` puts down works from there: the program, its limiter, its benchmarks and the simulated GPU."""
import json
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from conftest import BUILD

BENCHMARKS = ["card", "limiter", "share", "memory", "start", "hypervisor"]


@pytest.fixture(scope="module")
def prefix():
    if not (BUILD / "cmake_install.cmake").exists():
        pytest.skip("this folder was not configured by CMake")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="e2e-prefix-", dir="/dev/shm"))
    subprocess.run(["cmake", "--install", BUILD, "--prefix", folder, "--strip"], check=True, capture_output=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def program(machine, prefix):
    """Runs the installed program, as one who has no build folder."""
    def run(*words, **more):
        environment = {k: v for k, v in machine.environment.items() if k not in ("LD_LIBRARY_PATH", "TENSOR_FUSION_SIM")}
        return subprocess.run([prefix / "bin/tensor-fusion", *words], env={**environment, **more}, capture_output=True, text=True, timeout=110)
    return run


def test_what_is_installed_finds_its_limiter(machine, prefix):
    assert f"ExecStart={prefix}/bin/tensor-fusion " in (prefix / "lib/systemd/system/tensor-fusion-hypervisor.service").read_text()
    for file in ("share/man/man1/tensor-fusion.1", "share/bash-completion/completions/tensor-fusion",
                 "share/zsh/site-functions/_tensor-fusion", "share/fish/vendor_completions.d/tensor-fusion.fish"):
        assert (prefix / file).stat().st_size > 100, file
    done = subprocess.run([prefix / "bin/tensor-fusion", "run", "--vram", "1Gi", "--", "cat", "/proc/self/maps"],
                          env=machine.environment, capture_output=True, text=True)
    assert done.returncode == 0 and "limiter" in done.stdout, done.stderr


def test_every_benchmark_is_installed(program):
    done = program("bench", "--list", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["benchmarks"]) == sorted(BENCHMARKS)


def test_installed_benchmarks_measure_with_what_was_installed(program, prefix):
    done = program("bench", "start")  # whether the bars were held is not asked here
    assert "(simulated GPU)" in done.stdout and "bench start: true_ratio=" in done.stdout, done.stdout + done.stderr
    installed = prefix / "libexec/tensor-fusion"
    for line, said in ((["memory_bench", "20000"], "overshoot_bytes=0 drift_bytes=0"), (["share_bench", "--only", "lent", "--windows", "1"], "lent_percent=")):
        done = subprocess.run([installed / "bench" / line[0], *line[1:]], capture_output=True, text=True, timeout=110)
        assert said in done.stdout and "lent_percent=-1" not in done.stdout, done.stdout + done.stderr
    assert (installed / "bin/tensor-fusion").resolve() == (prefix / "bin/tensor-fusion").resolve()


def test_without_benchmarks_it_says_where_they_were_looked_for(program, prefix):
    hidden = prefix / "libexec/elsewhere"
    (prefix / "libexec/tensor-fusion/bench").rename(hidden)
    try:
        for words in (["bench"], ["bench", "--list"]):
            done = program(*words)
            assert done.returncode == 12 and done.stdout == "", done.stdout
            assert f"{prefix}/libexec/tensor-fusion/bench" in done.stderr and "cmake --install" in done.stderr
    finally:
        hidden.rename(prefix / "libexec/tensor-fusion/bench")


def test_doctor_offers_the_installed_simulated_gpu(program, prefix):
    done = program("doctor")
    if "CUDA" in done.stdout:
        pytest.skip("there is a real driver here")
    assert f"LD_LIBRARY_PATH={prefix}/libexec/tensor-fusion/sim" in done.stdout
    done = program("devices", LD_LIBRARY_PATH=f"{prefix}/libexec/tensor-fusion/sim", TENSOR_FUSION_SIM="2xh100")
    assert done.returncode == 0 and "H100" in done.stdout, done.stderr

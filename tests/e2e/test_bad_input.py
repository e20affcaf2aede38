"""What cannot be done is answered with one clear sentence and a documented exit code, and nothing is started."""
import pytest

# arguments of `run` before the program, what the answer must mention, exit code
REFUSED = [
    (["--vram", "0"], "0", 2),
    (["--vram", "-1Gi"], "-1Gi", 2),
    (["--vram", "nan"], "nan", 2),
    (["--vram", "8Gx"], "8Gx", 2),
    (["--vram", "500Gi"], "500", 111),
    (["--compute", "0%"], "0", 2),
    (["--compute", "101%"], "101", 2),
    (["--compute", "NaN%"], "NaN", 2),
    (["--compute", "-5%"], "-5%", 2),
    (["--compute", "20%", "--compute-request", "30%"], "30", 2),
    (["--gpu", "97"], "97", 2),
    (["--gpu", "GPU-00000000-dead-beef-0000-000000000000"], "dead-beef", 2),
    (["--gpus", "0"], "0", 2),
    (["--gpus", "9"], "9", 111),
    (["--qos", "urgent"], "urgent", 2),
    (["--vrma", "2Gi"], "--vram", 2),
]


@pytest.mark.parametrize("arguments,mentioned,code", REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_run_refuses(machine, arguments, mentioned, code):
    machine.hypervisor()
    output, error = machine.cli("run", *arguments, "--", "/bin/echo", "started", code=code)
    assert "started" not in output
    assert mentioned in error, error
    assert len(error.strip().splitlines()) <= 3, error
    assert machine.shown("ps")["slices"] == []


def test_a_program_that_does_not_exist(machine):
    machine.hypervisor()
    _, error = machine.cli("run", "--vram", "1Gi", "--", "/no/such/program", code=127)
    assert "/no/such/program" in error


def test_a_file_that_cannot_be_executed(machine, folder):
    machine.hypervisor()
    (folder / "text").write_text("hello")
    machine.cli("run", "--vram", "1Gi", "--", folder / "text", code=126)


def test_a_command_that_does_not_exist_is_answered_with_the_nearest(machine):
    _, error = machine.cli("devcies", code=2)
    assert "devices" in error


def test_a_name_that_is_taken(machine):
    machine.hypervisor()
    tenant = machine.tenant(["wait"], "--vram", "1Gi", "--name", "night")
    tenant.said()
    tenant.said()
    _, error = machine.cli("run", "--name", "night", "--vram", "1Gi", "--", "/bin/true", code=113)
    assert "night" in error
    tenant.end()


def test_a_slice_that_does_not_exist(machine):
    machine.hypervisor()
    for arguments in (["limit", "nobody", "--vram", "1Gi"], ["kill", "nobody"], ["logs", "nobody"]):
        _, error = machine.cli(*arguments, code=12)
        assert "nobody" in error

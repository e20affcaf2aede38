"""The loader asks audit libraries (LD_AUDIT) where each library lies and where each symbol leads: the limiter's too."""
import shutil
import subprocess
import sys

import pytest

from conftest import GIB, MIB, TENANT, until

# Finds no limiter; leads who looks for `dlsym` past it; changes nothing.
AUDITS = {
    "drops it": """char* la_objsearch(const char* name, uintptr_t* c, unsigned f) {
  (void)c, (void)f;
  return strstr(name, "tensor_fusion_limiter") ? 0 : (char*)name;
}""",
    "leads past it": """unsigned la_objopen(struct link_map* map, Lmid_t space, uintptr_t* cookie) {
  (void)space;
  *cookie = strstr(map->l_name, "tensor_fusion_limiter") != 0;
  return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
static void* real(void* handle, const char* name) { return dlsym(handle, name); }
uintptr_t la_symbind64(Elf64_Sym* s, unsigned n, uintptr_t* r, uintptr_t* to, unsigned* f, const char* name) {
  (void)n, (void)r, (void)f;
  return *to == 1 && !strcmp(name, "dlsym") ? (uintptr_t)real : s->st_value;
}""",
    "is honest": "",
}


@pytest.fixture
def audit(machine, request):
    if not shutil.which("cc"):
        pytest.skip("there is no cc here")
    source, library = machine.folder / "audit.c", machine.folder / "audit.so"
    source.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <link.h>\n#include <string.h>\n"
                      "unsigned la_version(unsigned version) { return version; }\n" + AUDITS[request.param] + "\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def has_view(machine):
    """Where no view can be made, `run` says so, and children are only watched."""
    if "LD_PRELOAD" in machine.cli("run", "--vram", "1Gi", "--", "true")[1]:
        pytest.skip("no mount namespace can be made here")


def sly(audit):
    """A shell command for tenant.py: a child without the limiter, which takes four times its limit and waits."""
    return f"fork:sleep 600 | LD_AUDIT={audit} {sys.executable} {TENANT} alloc:{4 * GIB} wait >&2"


@pytest.mark.parametrize("audit", AUDITS, indirect=True)
def test_run_leaves_an_audit_library_out_of_its_program(machine, audit):
    machine.hypervisor()
    for options, environment in (([], {"LD_AUDIT": str(audit)}), (["--env", f"LD_AUDIT={audit}"], {})):
        tenant = machine.start(*machine.program("run", "--vram", "1Gi", *options, "--", sys.executable, TENANT, f"fill:{64 * MIB}"),
                               environment=environment)
        tenant.said()
        assert tenant.said()["bytes"] <= GIB
        tenant.end()
    machine.until_logged("LD_AUDIT is left out of the program's environment")


@pytest.mark.parametrize("audit", ["drops it", "leads past it"], indirect=True)
def test_a_child_that_has_the_limiter_taken_out_is_ended(machine, audit):
    machine.hypervisor()
    has_view(machine)
    tenant = machine.tenant([sly(audit), "wait"], "--vram", "1Gi", "--name", "sly")
    tenant.said()
    ended = until("it is ended", lambda: [e for e in machine.shown("events")["events"] if e["kind"] == "unlimited"])
    assert "was ended" in ended[0]["message"]
    assert tenant.child.poll() is None, "nobody else is"


@pytest.mark.parametrize("audit", ["drops it"], indirect=True)
def test_a_child_without_a_limiter_goes_on_where_that_was_allowed(machine, audit):
    machine.hypervisor()
    has_view(machine)
    tenant = machine.tenant([sly(audit)], "--vram", "1Gi", "--name", "open", "--allow-unlimited")
    tenant.said()
    seen = until("it is seen", lambda: [e for e in machine.shown("events")["events"] if e["kind"] == "unlimited"])
    assert "uses the GPU without a live limiter" in seen[0]["message"]
    assert [p["limited"] for s in machine.shown("ps")["slices"] for p in s["processes"]].count(False) == 1


@pytest.mark.parametrize("audit", ["is honest"], indirect=True)
def test_a_child_with_an_honest_audit_library_is_limited(machine, audit):
    machine.hypervisor()
    tenant = machine.tenant([f"fork:LD_AUDIT={audit} {sys.executable} {TENANT} alloc:{GIB} >&2"], "--vram", "1Gi")
    tenant.said()
    assert tenant.said()["status"] == 0
    machine.until_logged('"CUDA_ERROR_OUT_OF_MEMORY"')

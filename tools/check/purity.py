#!/usr/bin/env python3
"""Proves with nm that the pure rooms of src/layers.txt call no clock, file, socket, thread or environment function.

usage: purity.py BUILD_FOLDER   check build/<preset>/libtf_<room>.a of every pure room
       purity.py --self-test    prove on planted violations that the check fails when it should

A C function must be on the list below; anything else is a leak. C++ library symbols are judged by name.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from layers import Layers  # noqa: E402

# C functions that only compute: memory, text, arithmetic, and what the compiler itself calls.
COMPUTES = re.compile(
    r"mem(cpy|set|cmp|move|chr|rchr|mem|pcpy)|(__)?(str|wcs|wmem)(?!error)\w+|malloc|calloc|realloc|free|aligned_alloc|posix_memalign"
    r"|v?snprintf|v?sscanf|abs|labs|qsort|bsearch|ato[ifl]+|to(upper|lower)|is(al|dig|sp|xd|up|lo|pun|pr|gr|cn)\w+|abort"
    r"|(a?(sin|cos|tan)h?|exp2?|expm1|log(2|10|1p)?|pow|sqrt|cbrt|hypot|fmod|remainder|atan2|floor|ceil|l?l?(round|rint)"
    r"|nearbyint|trunc|fm(a|in|ax)|frexp|ldexp|scalbn?|ilogb|logb|modf|nextafter|copysign|fabs|erfc?|[tl]gamma|nan)[fl]?"
    r"|__\w+_finite|__(mem|str)\w+_chk|__v?snprintf_chk|__isoc\d+_(strto\w+|sscanf)|__ctype_\w+|__errno_location"
    r"|__cxa_\w+|__gxx_personality_v0|_Unwind_\w+|__dynamic_cast|__stack_chk_fail|__assert_fail|__tls_get_addr|__dso_handle"
    r"|_GLOBAL_OFFSET_TABLE_|__(u?div|u?mod|mul|float|fix|trunc|extend|popcount)\w*[dst][if]\w*|_?_gcov\w+|__gcov\w+"
    r"|_(I|T)TM_\w+|__gmon_start__")

# Parts of the C++ library that reach outside, by demangled name.
REACHES_OUT = re.compile(
    r"std::(chrono::\S*::now|(this_)?thread|jthread|condition_variable|mutex|shared_mutex|basic_(i|o)?f(stream|ilebuf)|filesystem"
    r"|random_device|cout|cin|cerr|clog|ios_base::Init|__atomic_wait|get_terminate|system_category|locale::global)"
    r"|tensor_fusion::(system|kube|device|cloud|node|cluster|guest|worker|cli|tui|console|sim)::")


def leaks(archive):
    """The symbols of a static library that a pure room may not need, each with its object file."""
    listed = subprocess.run(["nm", "-A", "-u", str(archive)], capture_output=True, text=True, check=True).stdout
    rows = [match.groups() for line in listed.splitlines() if (match := re.match(r".*?:(\S+):\s+[Uwv]\s+(\S+)$", line))]
    plain = subprocess.run(["c++filt"], input="\n".join(symbol for _, symbol in rows), capture_output=True, text=True).stdout.splitlines()
    found = []
    for (where, symbol), name in zip(rows, plain):
        if symbol.startswith("_Z"):
            if REACHES_OUT.search(name):
                found.append(f"{where} calls {name}")
        elif not COMPUTES.fullmatch(symbol.split("@")[0]):
            found.append(f"{where} calls {symbol}")
    return sorted(set(found))


def check(build):
    root = pathlib.Path(__file__).parents[2]
    errors, seen = [], 0
    for room in Layers(root / "src/layers.txt").pure:
        archive = build / f"libtf_{room.replace('/', '_')}.a"
        has_code = any(not re.search(r"_(test|bench|fuzz)$", f.stem) for f in (root / "src" / room).glob("**/*.cpp"))
        if not has_code:
            continue  # headers only, or not built yet: nothing to link
        if not archive.is_file():
            errors.append(f"{archive} is missing: build it first")
            continue
        seen += 1
        errors += [f"{room}: {leak}" for leak in leaks(archive)]
    return errors, seen


def self_test():
    pure = """#include <string>
        #include <vector>
        #include <cstdio>
        #include <cmath>
        std::string f(double x, std::vector<int>& v) {
          char b[32]; std::snprintf(b, sizeof b, "%g", std::exp2(x)); v.push_back(1); return std::string(b) + std::to_string(x); }"""
    planted = {
        "a clock": "#include <chrono>\nlong f() { return std::chrono::steady_clock::now().time_since_epoch().count(); }",
        "a C clock": "#include <time.h>\nlong f() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec; }",
        "a file": "#include <cstdio>\nbool f() { return std::fopen(\"x\", \"r\") != nullptr; }",
        "a C++ file": "#include <fstream>\nbool f() { return std::ifstream(\"x\").good(); }",
        "a socket": "#include <sys/socket.h>\nint f() { return socket(AF_INET, SOCK_STREAM, 0); }",
        "a thread": "#include <thread>\nvoid f() { std::thread([] {}).join(); }",
        "the environment": "#include <cstdlib>\nbool f() { return std::getenv(\"HOME\") != nullptr; }",
        "a door": "namespace tensor_fusion::system { int now(); }\nint f() { return tensor_fusion::system::now(); }",
    }
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        def built(text):
            source = pathlib.Path(folder) / "x.cpp"
            source.write_text(text)
            subprocess.run(["c++", "-std=c++20", "-O1", "-c", "-o", f"{folder}/x.o", str(source)], check=True)
            subprocess.run(["ar", "rcs", f"{folder}/x.a", f"{folder}/x.o"], check=True)
            (pathlib.Path(folder) / "x.o").unlink()
            found = leaks(f"{folder}/x.a")
            pathlib.Path(f"{folder}/x.a").unlink()
            return found
        if built(pure):
            failures += 1
            print(f"pure code is refused: {built(pure)}")
        for what, text in planted.items():
            if not built(text):
                failures += 1
                print(f"not found: {what}")
    print(f"purity self-test: {1 + len(planted) - failures} passed, {failures} failed")
    return failures


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test() else 0)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found, rooms = check(pathlib.Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"purity: {rooms} rooms, {len(found)} problems")
    sys.exit(1 if found else 0)

"""Takes GPU memory until the driver says no. Prints the bytes it got and the driver's own word for the refusal.

usage: greedy.py [CHUNK_MIB]

Ends with 0 when the refusal was CUDA_ERROR_OUT_OF_MEMORY. Keeps what it holds until its standard input ends.
"""
import ctypes
import json
import sys

OUT_OF_MEMORY = 2


def main(chunk_mib):
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        return getattr(cuda, name)(*arguments)

    def word(code):
        name = ctypes.c_char_p()
        call("cuGetErrorName", code, ctypes.byref(name))
        return (name.value or b"?").decode()

    context, device = ctypes.c_void_p(), ctypes.c_int()
    for name, *arguments in (("cuInit", 0), ("cuDeviceGet", ctypes.byref(device), 0),
                             ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device), ("cuCtxSetCurrent", context)):
        if code := call(name, *arguments):
            sys.exit(f"{name}: {word(code)}")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    taken, pointers, code = 0, [], 0
    chunk = chunk_mib << 20
    while code == 0 and taken < 1 << 40:
        pointer = ctypes.c_uint64()
        code = call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(chunk))
        if code == 0:
            pointers.append(pointer)
            taken += chunk
    print(json.dumps({"taken_bytes": taken, "total_bytes": total.value, "code": code, "word": word(code)}), flush=True)
    sys.stdin.read()
    sys.exit(0 if code == OUT_OF_MEMORY else 1)


main(int(sys.argv[1]) if len(sys.argv) > 1 else 16)

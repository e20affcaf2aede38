#!/usr/bin/env python3
"""A GPU program for the tests: carries out words given on its command line, says one line of JSON for each.

usage: tenant.py WORD…
  alloc:BYTES     allocate                           {"word", "result", "bytes"}
  fill:BYTES      allocate BYTES at a time until refused; {"word", "result", "bytes": total}
  free            free everything                    info   {"free", "total"} as the driver tells this process
  load:US         compile a kernel that keeps the device for about US microseconds (of simulated time)
  occupy:NS       a kernel that keeps the device for NS nanoseconds and costs the processor nothing (of a simulated device)
  takes:NS        from now on the kernel of `occupy` takes so long: a matter of its argument
  spin:N          launch it N times and synchronise  {"launches", "seconds"}
  capture         begin to capture a stream, in any mode that disturbs no other, and never end it
  fleeting:N      launch it N times, each on a stream that is destroyed at once; {"launches"}
  busy            launch and synchronise until standard input closes
  fork:COMMAND    run a shell command and wait       {"status"}
  wait            wait until standard input closes, then go on

TENANT_LIBCUDA names the library when no search path does (a child with an empty environment).
"""
import ctypes
import json
import os
import select
import subprocess
import sys
import time

NAMES = {0: "CUDA_SUCCESS", 1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 100: "CUDA_ERROR_NO_DEVICE"}

# Counts down in a register: %0 iterations of a loop of four instructions, on one thread.
SPIN_PTX = """.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u32 n) {
  .reg .u32 %r<4>; .reg .pred %p;
  ld.param.u32 %r1, [n];
LOOP:
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra LOOP;
  ret;
}
"""


# The simulated device takes the time it is told.
OCCUPY_PTX = """.version 7.0
.target sm_70
.address_size 64
.visible .entry tensor_fusion_busy(.param .u64 ns) { ret; }
"""


def say(word, **fields):
    sys.stdout.write(json.dumps({"word": word, **fields}) + "\n")  # in one piece: others may write to the same pipe
    sys.stdout.flush()


class Program:
    def __init__(self):
        self.driver = ctypes.CDLL(os.environ.get("TENANT_LIBCUDA", "libcuda.so.1"))
        self.memory, self.function, self.count = [], None, None
        context = ctypes.c_void_p()
        status = self.driver.cuInit(0)
        device = ctypes.c_int()
        status = status or self.driver.cuDeviceGet(ctypes.byref(device), 0)
        status = status or self.driver.cuCtxCreate_v2(ctypes.byref(context), 0, device)
        say("start", result=self.name(status), pid=os.getpid())
        if status:
            sys.exit(1)

    def name(self, status):
        return NAMES.get(status, str(status))

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        status = self.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        if status == 0:
            self.memory.append(pointer)
        return status

    def alloc(self, size):
        say("alloc", result=self.name(self.allocate(int(size))), bytes=int(size))

    def fill(self, size):
        total, status = 0, 0
        while status == 0:
            status = self.allocate(int(size))
            total += 0 if status else int(size)
        say("fill", result=self.name(status), bytes=total)

    def free(self):
        while self.memory:
            self.driver.cuMemFree_v2(self.memory.pop())
        say("free")

    def info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        status = self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        say("info", result=self.name(status), free=free.value, total=total.value)

    def kernel(self, source, name, count):
        module, self.function, self.count = ctypes.c_void_p(), ctypes.c_void_p(), count
        status = self.driver.cuModuleLoadData(ctypes.byref(module), source.encode())
        return status or self.driver.cuModuleGetFunction(ctypes.byref(self.function), module, name)

    def load(self, iterations):
        say("load", result=self.name(self.kernel(SPIN_PTX, b"spin", ctypes.c_uint32(int(iterations)))))

    def occupy(self, ns):
        say("occupy", result=self.name(self.kernel(OCCUPY_PTX, b"tensor_fusion_busy", ctypes.c_uint64(int(ns)))))

    def takes(self, ns):
        self.count = ctypes.c_uint64(int(ns))
        say("takes")

    def capture(self):
        stream, relaxed = ctypes.c_void_p(), 2
        status = self.driver.cuStreamCreate(ctypes.byref(stream), 1)
        say("capture", result=self.name(status or self.driver.cuStreamBeginCapture_v2(stream, relaxed)))

    def launch(self, stream=None):
        count = self.count
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(count), ctypes.c_void_p))
        return self.driver.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)

    def fleeting(self, number):
        status = 0
        for _ in range(int(number)):
            stream = ctypes.c_void_p()
            status = status or self.driver.cuStreamCreate(ctypes.byref(stream), 1)
            status = status or self.launch(stream)
            status = status or self.driver.cuStreamDestroy_v2(stream)
        say("fleeting", result=self.name(status), launches=int(number))

    def spin(self, number):
        start, status = time.monotonic(), 0
        for _ in range(int(number)):
            status = status or self.launch()
        status = status or self.driver.cuCtxSynchronize()
        say("spin", result=self.name(status), launches=int(number), seconds=time.monotonic() - start)

    def busy(self):
        launches, status = 0, 0
        while status == 0 and not select.select([0], [], [], 0)[0]:
            for _ in range(8):
                status = status or self.launch()
                launches += 1
            status = status or self.driver.cuCtxSynchronize()
            if launches == 8:
                say("busy", result=self.name(status))
        say("busy_ended", result=self.name(status), launches=launches)

    def fork(self, command):
        say("fork", status=subprocess.run(["/bin/sh", "-c", command]).returncode)

    def wait(self):
        say("wait")
        sys.stdin.read()


program = Program()
for word in sys.argv[1:]:
    name, _, argument = word.partition(":")
    getattr(program, name)(*([argument] if argument else []))

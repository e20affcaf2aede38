#!/usr/bin/env python3
"""What a tool that speaks to NVML by the `pynvml` of nvidia-ml-py finds; one JSON object. usage: nvml_tool.py"""
import json

import pynvml

pynvml.nvmlInit()
cards = []
for index in range(pynvml.nvmlDeviceGetCount()):
    card = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory, use = pynvml.nvmlDeviceGetMemoryInfo(card), pynvml.nvmlDeviceGetUtilizationRates(card)
    cards.append({
        "name": pynvml.nvmlDeviceGetName(card), "uuid": pynvml.nvmlDeviceGetUUID(card),
        "bus": pynvml.nvmlDeviceGetPciInfo(card).busId, "total": memory.total, "free": memory.free, "used": memory.used,
        "total_v2": pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2).total,
        "gpu_percent": use.gpu, "memory_percent": use.memory, "milliwatts": pynvml.nvmlDeviceGetPowerUsage(card),
        "capability": pynvml.nvmlDeviceGetCudaComputeCapability(card),
        "processes": {p.pid: p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card)},
    })
try:
    pynvml.nvmlDeviceGetHandleByIndex(len(cards))
    beyond = None
except pynvml.NVMLError as error:
    beyond = str(error)
print(json.dumps({"driver": pynvml.nvmlSystemGetDriverVersion(), "cuda": pynvml.nvmlSystemGetCudaDriverVersion_v2(),
                  "cards": cards, "beyond": beyond}))
pynvml.nvmlShutdown()

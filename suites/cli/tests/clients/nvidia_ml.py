"""PyPI's nvidia-ml-py, unmodified: what NVML tells a tenant. Prints one JSON object."""

import json

import pynvml

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
old = pynvml.nvmlDeviceGetMemoryInfo(handle)
new = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
pci = pynvml.nvmlDeviceGetPciInfo(handle)
print(
    json.dumps(
        {
            "count": pynvml.nvmlDeviceGetCount(),
            "name": pynvml.nvmlDeviceGetName(handle),
            "uuid": pynvml.nvmlDeviceGetUUID(handle),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "bus": pci.busId,
            "total": old.total,
            "used": old.used,
            "free": old.free,
            "v2_total": new.total,
            "v2_reserved": new.reserved,
            "processes": len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        }
    )
)
pynvml.nvmlShutdown()

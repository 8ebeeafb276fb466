"""Every function of PyPI's nvidia-ml-py, unmodified, with arguments by their names. Prints one JSON object:
what succeeded, what raised which NVMLError, and what went wrong otherwise."""

import ctypes
import inspect
import json

import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
pci = pynvml.nvmlDeviceGetPciInfo(device)

# These end the library, need a set-up of their own, or are no calls.
LEFT_OUT = {"nvmlInit", "nvmlInitWithFlags", "nvmlShutdown", "nvmlExceptionClass", "nvmlStructToFriendlyObject", "nvmlFriendlyObjectToStruct",
    # Hands on a structure that only its caller can fill; the real library dies of NULL there too.
    "nvmlDeviceGetPowerMizerMode_v1", "nvmlDeviceSetPowerMizerMode_v1"}

BY_NAME = {
    "handle": device,
    "device": device,
    "device1": device,
    "device2": device,
    "handle1": device,
    "handle2": device,
    "uuid": pynvml.nvmlDeviceGetUUID(device),
    "pciBusId": pci.busId,
    "pciInfo": pci,
    "serial": pynvml.nvmlDeviceGetSerial(device),
    "index": 0,
    "nodeSetSize": 1,
    "cpuSetSize": 1,
    "cpuset": 1,
    "fieldIds": [1, 82, 83, 185, 186],
    "fieldId": 83,
    "timeStamp": 0,
    "lastSeenTimeStamp": 0,
    "timeout": 1,
    "timeoutms": 1,
    "profile": 0,
    "profileId": 19,
    "pid": 1,
    "samplingType": 1,
    "sampling_type": 1,
    "eventTypes": 0,
    "memClk": 3201,
    "memoryClockMHz": 3201,
    "version": None,
}


def argument(name, call):
    if name == "eventSet":
        return pynvml.nvmlEventSetCreate()
    return BY_NAME.get(name, 0)


said = {"answered": [], "raised": {}, "wrong": {}}
for name, call in sorted(vars(pynvml).items()):
    if not name.startswith("nvml") or name in LEFT_OUT or not inspect.isfunction(call):
        continue
    wanted = [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    try:
        call(*[argument(parameter.name, call) for parameter in wanted])
        said["answered"].append(name)
    except pynvml.NVMLError as error:
        said["raised"][name] = error.value
    except (ctypes.ArgumentError, TypeError, AttributeError) as error:
        # A structure that only its caller can fill.
        said["wrong"][name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))

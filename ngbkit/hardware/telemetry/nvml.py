"""An NVIDIA GPU, read with NVML: the library that comes with its driver, and no CUDA."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from ngbkit.hardware.telemetry import visible
from ngbkit.hardware.telemetry.reading import Reading, Seldom

# An A100 or H100 looks at its power for 25 ms of every 100 ms, and older chips look more often (arXiv 2312.02741).
_LAG_S = 0.1
# From Ampere on, nvmlDeviceGetPowerUsage tells the mean of the last second (NVML's reference).
_MEAN_LAG_S = 1.0
_AMPERE = 7
_POWER_INSTANT = 186

# What slows a GPU down. The other bits are idling (1), and clocks that a user (2) or a display (256) has set.
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class Nvml:
    """NVML's functions, each of which may be refused: by the GPU, by the driver, or by what is installed.

    Parameters
    ----------
    module
        `pynvml`, initialised.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.refused = (module.NVMLError, getattr(module, "NVMLLibraryMismatchError", module.NVMLError), AttributeError)

    def ask(self, name: str, *arguments: Any) -> Any:
        """What a function answers; None where it refuses."""
        try:
            return getattr(self.module, name)(*arguments)
        except self.refused:
            return None


def find(accelerator: str) -> NvmlChip | str:
    """The GPU that a child of this process gets as its ordinal 0; a sentence where it cannot be read."""
    try:
        module = import_module("pynvml")
    except ImportError:
        return "what the GPU does cannot be read: nvidia-ml-py is not installed; pip install 'ngbkit[cuda]'"
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        return f"what the GPU does cannot be read: NVML says {error}; it comes with NVIDIA's driver: try nvidia-smi"
    nvml, named = Nvml(module), visible.entry(accelerator, os.environ)
    gpus = list(_gpus(nvml))
    found = visible.match(named, gpus, os.environ.get("CUDA_DEVICE_ORDER", ""))
    if found is None:
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"
        return f"no GPU is {named or 'nothing'!r}, which CUDA_VISIBLE_DEVICES or {accelerator!r} says; NVML has {known}"
    return NvmlChip(nvml, found)


def _gpus(nvml: Nvml) -> Iterator[visible.Gpu]:
    for index in range(nvml.ask("nvmlDeviceGetCount") or 0):
        # One that this user may not use is listed and refused.
        if (handle := nvml.ask("nvmlDeviceGetHandleByIndex", index)) is not None:
            name, uuid = nvml.ask("nvmlDeviceGetName", handle), nvml.ask("nvmlDeviceGetUUID", handle)
            slices = tuple(str(one) for _, one in _slices(nvml, handle))
            yield visible.Gpu(index=index, name=str(name), uuid=str(uuid), slices=slices)


def _slices(nvml: Nvml, gpu: Any) -> Iterator[tuple[Any, str]]:
    """The MIG slices of a GPU: handle and UUID."""
    if not (nvml.ask("nvmlDeviceGetMigMode", gpu) or [0])[0]:
        return
    for index in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
        if (handle := nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)) is not None:
            yield handle, str(nvml.ask("nvmlDeviceGetUUID", handle))


class NvmlChip:
    """A GPU, or a MIG slice of one.

    Of a slice, the memory is its own and the clocks are the GPU's, but power, energy and utilisation are those of all
    slices together: they are None.

    Parameters
    ----------
    nvml
        How it is asked.
    match
        Which it is.
    clock
        Gives the time of a reading, in seconds.
    """

    def __init__(self, nvml: Nvml, match: visible.Match, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._match, self._clock = nvml, match, clock
        self._gpu = nvml.ask("nvmlDeviceGetHandleByIndex", match.gpu.index)
        # What holds the memory: the slice where there is one.
        self._part = next((handle for handle, uuid in _slices(nvml, self._gpu) if uuid == match.slice), self._gpu)
        self._whole = not match.gpu.slices
        self._instant = self._power_instant() is not None
        self._processes = Seldom(self._read_processes)

    @property
    def lag_s(self) -> float:
        """The longest time that power and energy may be behind, in seconds."""
        if self._instant or self._energy() is not None:
            return _LAG_S
        architecture = self._ask("nvmlDeviceGetArchitecture")
        return _LAG_S if architecture is not None and architecture < _AMPERE else _MEAN_LAG_S

    def read(self) -> Reading:
        """The GPU now. Power is that of the moment where the driver tells it, and else what it calls usage."""
        now, module = self._clock(), self._nvml.module
        used = self._ask("nvmlDeviceGetUtilizationRates") if self._whole else None
        memory = self._memory()
        return Reading(
            at_s=now,
            energy_j=self._energy() if self._whole else None,
            power_w=self._power() if self._whole else None,
            busy_percent=None if used is None else float(used.gpu),
            memory_used_bytes=None if memory is None else int(memory.used),
            process_memory_bytes=self._processes.at(now),
            clock_mhz=_real(self._ask("nvmlDeviceGetClockInfo", module.NVML_CLOCK_SM)),
            memory_clock_mhz=_real(self._ask("nvmlDeviceGetClockInfo", module.NVML_CLOCK_MEM)),
            temperature_c=_real(self._temperature()),
            throttled=self._throttled(),
        )

    def describe(self) -> dict[str, Any]:
        """Name, driver, power limit, highest clocks and modes, as plain JSON; what is not told is None."""
        module = self._nvml.module
        memory = self._memory()
        ecc, mig = self._ask("nvmlDeviceGetEccMode"), self._ask("nvmlDeviceGetMigMode")
        persistent = self._ask("nvmlDeviceGetPersistenceMode")
        return {
            "name": self._match.gpu.name,
            "uuid": self._match.slice or self._match.gpu.uuid,
            "read_with": "NVML",
            "assumed": self._match.assumed or None,
            "driver": self._nvml.ask("nvmlSystemGetDriverVersion"),
            "vbios": self._ask("nvmlDeviceGetVbiosVersion"),
            "memory_bytes": None if memory is None else int(memory.total),
            "power_limit_w": _thousandth(self._ask("nvmlDeviceGetEnforcedPowerLimit")),
            "power_limit_default_w": _thousandth(self._ask("nvmlDeviceGetPowerManagementDefaultLimit")),
            "clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", module.NVML_CLOCK_SM),
            "memory_clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", module.NVML_CLOCK_MEM),
            "clock_set_mhz": self._ask("nvmlDeviceGetApplicationsClock", module.NVML_CLOCK_SM),
            "persistence": None if persistent is None else bool(persistent),
            "ecc": None if ecc is None else bool(ecc[0]),
            "mig": None if mig is None else bool(mig[0]),
            "energy_counter": self._whole and self._energy() is not None,
            "energy_lag_s": self.lag_s,
        }

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self._nvml.ask(name, self._gpu, *arguments)

    def _energy(self) -> float | None:
        return _thousandth(self._ask("nvmlDeviceGetTotalEnergyConsumption"))

    def _power(self) -> float | None:
        return self._power_instant() if self._instant else _thousandth(self._ask("nvmlDeviceGetPowerUsage"))

    def _power_instant(self) -> float | None:
        values = self._ask("nvmlDeviceGetFieldValues", [_POWER_INSTANT])
        # The answer to each field says itself whether it is one: 0.
        return None if not values or values[0].nvmlReturn else _thousandth(values[0].value.uiVal)

    def _memory(self) -> Any:
        """Taken and total memory; the second version does not count what the driver keeps for itself as taken."""
        second = getattr(self._nvml.module, "nvmlMemory_v2", None)
        found = None if second is None else self._nvml.ask("nvmlDeviceGetMemoryInfo", self._part, second)
        return found or self._nvml.ask("nvmlDeviceGetMemoryInfo", self._part)

    def _temperature(self) -> int | None:
        found = self._ask("nvmlDeviceGetTemperature", self._nvml.module.NVML_TEMPERATURE_GPU)
        if found is None:
            # The only one from CUDA 14 on.
            found = self._ask("nvmlDeviceGetTemperatureV", self._nvml.module.NVML_TEMPERATURE_GPU)
        return None if found is None else int(found)

    def _read_processes(self) -> dict[int, int]:
        running = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", self._part) or []
        return {int(one.pid): int(one.usedGpuMemory) for one in running if one.usedGpuMemory is not None}

    def _throttled(self) -> frozenset[str]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            # Its name before driver 535.
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return frozenset(word for bit, word in _REASONS.items() if (bits or 0) & bit)


def _real(value: int | None) -> float | None:
    return None if value is None else float(value)


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000

"""Telemetry of an NVIDIA GPU by NVML, a library that its driver includes, and without CUDA."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from ngbkit.hardware.telemetry import visible
from ngbkit.hardware.telemetry.reading import PERIOD_S, CachedValue, Reading

# An A100 or H100 samples its power for 25 ms of every 100 ms, and older chips sample more often (arXiv 2312.02741).
_LAG_S = 0.1
# From Ampere on, nvmlDeviceGetPowerUsage returns the mean of the last second (NVML's reference).
_MEAN_LAG_S = 1.0
_AMPERE = 7
_POWER_INSTANT = 186

# Causes that slow a GPU down. The other bits are idling (1), and clocks that a user (2) or a display (256) has set.
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class Nvml:
    """The functions of an initialised `pynvml`; GPU, driver or installed version may refuse each of them."""

    def __init__(self, module: Any) -> None:
        self.module = module
        mismatch = getattr(module, "NVMLLibraryMismatchError", module.NVMLError)
        self.refusals = (module.NVMLError, mismatch, AttributeError)

    def query(self, name: str, *arguments: Any) -> Any:
        """Call a function; None if it refuses."""
        try:
            return getattr(self.module, name)(*arguments)
        except self.refusals:
            return None


def find_gpu(accelerator: str) -> NvmlChip | str:
    """Find the GPU that is ordinal 0 of a child of this process; return a sentence if it cannot be read."""
    try:
        module = import_module("pynvml")
    except ImportError:
        return "cannot read GPU telemetry: nvidia-ml-py is not installed; pip install nvidia-ml-py"
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        return f"cannot read GPU telemetry: NVML reports {error}; it is part of NVIDIA's driver: try nvidia-smi"
    nvml, selector = Nvml(module), visible.select_entry(accelerator, os.environ)
    gpus = list(_list_gpus(nvml))
    match = visible.match_gpu(selector, gpus, os.environ.get("CUDA_DEVICE_ORDER", ""))
    if match is None:
        listed = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"
        return f"no GPU {selector or 'nothing'!r}, from CUDA_VISIBLE_DEVICES or {accelerator!r}; NVML lists {listed}"
    return NvmlChip(nvml, match)


def _list_gpus(nvml: Nvml) -> Iterator[visible.Gpu]:
    for index in range(nvml.query("nvmlDeviceGetCount") or 0):
        # NVML lists a GPU that this user may not use, and refuses to open it.
        if (handle := nvml.query("nvmlDeviceGetHandleByIndex", index)) is not None:
            name, uuid = nvml.query("nvmlDeviceGetName", handle), nvml.query("nvmlDeviceGetUUID", handle)
            slices = tuple(str(uuid) for _, uuid in _list_slices(nvml, handle))
            yield visible.Gpu(index=index, name=str(name), uuid=str(uuid), slices=slices)


def _list_slices(nvml: Nvml, gpu: Any) -> Iterator[tuple[Any, str]]:
    """List handle and UUID of the MIG slices of a GPU."""
    if not (nvml.query("nvmlDeviceGetMigMode", gpu) or [0])[0]:
        return
    for index in range(nvml.query("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
        if (handle := nvml.query("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)) is not None:
            yield handle, str(nvml.query("nvmlDeviceGetUUID", handle))


class NvmlChip:
    """A GPU, or a MIG slice of one.

    The memory of a slice is its own and its clocks are the GPU's, but power, energy and utilisation are those of all
    slices together and so None. `clock` returns the time of a reading, in seconds.
    """

    def __init__(self, nvml: Nvml, match: visible.Match, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._match, self._clock = nvml, match, clock
        self._gpu = nvml.query("nvmlDeviceGetHandleByIndex", match.gpu.index)
        # The owner of the memory: the slice if there is one.
        slices = _list_slices(nvml, self._gpu)
        self._memory_owner = next((handle for handle, uuid in slices if uuid == match.slice), self._gpu)
        self._is_undivided = not match.gpu.slices
        self._has_instant_power = self._read_instant_power() is not None
        self._processes = CachedValue(self._read_processes)

    period_s = PERIOD_S

    @property
    def lag_s(self) -> float:
        """The maximum delay of power and energy, in seconds."""
        if self._has_instant_power or self._read_energy() is not None:
            return _LAG_S
        architecture = self._query("nvmlDeviceGetArchitecture")
        return _LAG_S if architecture is not None and architecture < _AMPERE else _MEAN_LAG_S

    def read(self) -> Reading:
        """Read the GPU now; power is instantaneous if the driver reports that, and otherwise what it calls usage."""
        now, module = self._clock(), self._nvml.module
        rates = self._query("nvmlDeviceGetUtilizationRates") if self._is_undivided else None
        memory = self._read_memory()
        return Reading(
            time_s=now,
            energy_j=self._read_energy() if self._is_undivided else None,
            power_w=self._read_power() if self._is_undivided else None,
            busy_percent=None if rates is None else float(rates.gpu),
            memory_used_bytes=None if memory is None else int(memory.used),
            process_memory_bytes=self._processes.get(now),
            clock_mhz=_to_float(self._query("nvmlDeviceGetClockInfo", module.NVML_CLOCK_SM)),
            memory_clock_mhz=_to_float(self._query("nvmlDeviceGetClockInfo", module.NVML_CLOCK_MEM)),
            temperature_c=_to_float(self._read_temperature()),
            throttled=self._read_throttling(),
        )

    def describe(self) -> dict[str, Any]:
        """Describe name, driver, power limit, highest clocks and modes, as plain JSON; None if not reported."""
        module = self._nvml.module
        memory = self._read_memory()
        ecc, mig = self._query("nvmlDeviceGetEccMode"), self._query("nvmlDeviceGetMigMode")
        persistent = self._query("nvmlDeviceGetPersistenceMode")
        return {
            "name": self._match.gpu.name,
            "uuid": self._match.slice or self._match.gpu.uuid,
            "read_with": "NVML",
            "assumed": self._match.assumed or None,
            "driver": self._nvml.query("nvmlSystemGetDriverVersion"),
            "vbios": self._query("nvmlDeviceGetVbiosVersion"),
            "memory_bytes": None if memory is None else int(memory.total),
            "power_limit_w": _from_milli(self._query("nvmlDeviceGetEnforcedPowerLimit")),
            "power_limit_default_w": _from_milli(self._query("nvmlDeviceGetPowerManagementDefaultLimit")),
            "clock_max_mhz": self._query("nvmlDeviceGetMaxClockInfo", module.NVML_CLOCK_SM),
            "memory_clock_max_mhz": self._query("nvmlDeviceGetMaxClockInfo", module.NVML_CLOCK_MEM),
            "clock_set_mhz": self._query("nvmlDeviceGetApplicationsClock", module.NVML_CLOCK_SM),
            "persistence": None if persistent is None else bool(persistent),
            "ecc": None if ecc is None else bool(ecc[0]),
            "mig": None if mig is None else bool(mig[0]),
            "energy_counter": self._is_undivided and self._read_energy() is not None,
            "energy_lag_s": self.lag_s,
        }

    def _query(self, name: str, *arguments: Any) -> Any:
        return self._nvml.query(name, self._gpu, *arguments)

    def _read_energy(self) -> float | None:
        return _from_milli(self._query("nvmlDeviceGetTotalEnergyConsumption"))

    def _read_power(self) -> float | None:
        if self._has_instant_power:
            return self._read_instant_power()
        return _from_milli(self._query("nvmlDeviceGetPowerUsage"))

    def _read_instant_power(self) -> float | None:
        values = self._query("nvmlDeviceGetFieldValues", [_POWER_INSTANT])
        # Each field has a return code of its own, which is 0 if the field is valid.
        return None if not values or values[0].nvmlReturn else _from_milli(values[0].value.uiVal)

    def _read_memory(self) -> Any:
        """Read used and total memory; the second version does not count the driver's own memory as used."""
        second = getattr(self._nvml.module, "nvmlMemory_v2", None)
        info = None if second is None else self._nvml.query("nvmlDeviceGetMemoryInfo", self._memory_owner, second)
        return info or self._nvml.query("nvmlDeviceGetMemoryInfo", self._memory_owner)

    def _read_temperature(self) -> int | None:
        celsius = self._query("nvmlDeviceGetTemperature", self._nvml.module.NVML_TEMPERATURE_GPU)
        if celsius is None:
            # The only function from CUDA 14 on.
            celsius = self._query("nvmlDeviceGetTemperatureV", self._nvml.module.NVML_TEMPERATURE_GPU)
        return None if celsius is None else int(celsius)

    def _read_processes(self) -> dict[int, int]:
        processes = self._nvml.query("nvmlDeviceGetComputeRunningProcesses", self._memory_owner) or []
        return {
            int(process.pid): int(process.usedGpuMemory) for process in processes if process.usedGpuMemory is not None
        }

    def _read_throttling(self) -> frozenset[str]:
        bits = self._query("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            # Its name before driver 535.
            bits = self._query("nvmlDeviceGetCurrentClocksThrottleReasons")
        return frozenset(cause for bit, cause in _REASONS.items() if (bits or 0) & bit)


def _to_float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _from_milli(value: int | None) -> float | None:
    return None if value is None else value / 1000

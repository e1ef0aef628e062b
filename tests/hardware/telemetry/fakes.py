"""A fake NVML without a GPU, and a fake chip with prepared readings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ngbkit.hardware.telemetry import Reading


class NVMLError(Exception):
    """The error of NVML's functions."""


@dataclass
class Pynvml:
    """The used part of the module: each function answers from a table, and refuses without an entry."""

    # The answers of each GPU, by function.
    gpus: list[dict[Any, Any]]
    # The answers of functions without a GPU.
    system: dict[Any, Any] = field(default_factory=dict)

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def nvmlInit(self) -> None:
        if "nvmlInit" in self.system:
            raise NVMLError(self.system["nvmlInit"])

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[Any, Any]:
        return self.gpus[index]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: dict[Any, Any]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: dict[Any, Any], index: int) -> dict[Any, Any]:
        slices: list[dict[Any, Any]] = gpu.get("slices", [])
        if index >= len(slices):
            raise NVMLError("Not Found")
        return slices[index]

    def nvmlDeviceGetFieldValues(self, gpu: dict[Any, Any], fields: list[int]) -> list[Any]:
        power = gpu.get("instant_mw")
        return [SimpleNamespace(nvmlReturn=3 if power is None else 0, value=SimpleNamespace(uiVal=power or 0))]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml") or name == "nvmlMemory_v2":
            raise AttributeError(name)

        def answer(gpu: dict[Any, Any] | None = None, *arguments: Any) -> Any:
            value = (self.system if gpu is None else gpu).get((name, *arguments) if arguments else name)
            if value is None:
                raise NVMLError("Not Supported")
            return value

        return answer


def build_gpu(number: int, answers: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """Build a GPU with name, UUID and further answers, by function or by function and arguments."""
    identity = {"nvmlDeviceGetName": "NVIDIA Some GPU", "nvmlDeviceGetUUID": f"GPU-{number}{number}aa-0000"}
    return {**identity, **(answers or {})}


@dataclass
class FakeChip:
    """Returns its readings one after the other, and the last one for ever; calls `on_read` with their count."""

    readings: Iterable[Reading]
    lag_s: float = 0.0
    on_read: Callable[[int], None] = lambda count: None
    count: int = 0
    period_s: float = 30.0

    def read(self) -> Reading:
        readings = list(self.readings)
        self.count += 1
        self.on_read(self.count)
        return readings[min(self.count, len(readings)) - 1]

    def describe(self) -> dict[Any, Any]:
        return {"name": "fake"}

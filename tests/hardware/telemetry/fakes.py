"""NVML without a GPU, and a chip that tells what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ngbkit.hardware.telemetry import Reading


class NVMLError(Exception):
    """What NVML's functions raise."""


@dataclass
class Pynvml:
    """The module, as far as it is used: each function answers from a table, and refuses what is not in it.

    Parameters
    ----------
    gpus
        By GPU, what each function answers.
    system
        What those answer that are not asked of a GPU.
    """

    gpus: list[dict[Any, Any]]
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
        told = gpu.get("instant_mw")
        return [SimpleNamespace(nvmlReturn=3 if told is None else 0, value=SimpleNamespace(uiVal=told or 0))]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml") or name == "nvmlMemory_v2":
            raise AttributeError(name)

        def answer(gpu: dict[Any, Any] | None = None, *arguments: Any) -> Any:
            told = (self.system if gpu is None else gpu).get((name, *arguments) if arguments else name)
            if told is None:
                raise NVMLError("Not Supported")
            return told

        return answer


def gpu(number: int, told: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """A GPU that tells who it is, and more where asked for: by function, or by function and what it is asked about."""
    who = {"nvmlDeviceGetName": "NVIDIA Some GPU", "nvmlDeviceGetUUID": f"GPU-{number}{number}aa-0000"}
    return {**who, **(told or {})}


@dataclass
class FakeChip:
    """Gives readings one after the other, and the last of them for ever; `asked` is told of each."""

    readings: Iterable[Reading]
    lag_s: float = 0.0
    asked: Callable[[int], None] = lambda count: None
    count: int = 0

    def read(self) -> Reading:
        kept = list(self.readings)
        self.count += 1
        self.asked(self.count)
        return kept[min(self.count, len(kept)) - 1]

    def describe(self) -> dict[Any, Any]:
        return {"name": "fake"}

"""Selection of the GPU that a process would get as its ordinal 0, in the order of NVML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_ORDER = (
    "CUDA numbers different GPUs with the fastest first, NVML by their bus: GPU {} of NVML is assumed to be CUDA's. "
    "Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPU in CUDA_VISIBLE_DEVICES by its UUID"
)
_SLICE = "GPU {} is divided into MIG slices, and its number does not select one: name the slice by its UUID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU in the list of NVML: its index, name and UUID, and the UUIDs of its MIG slices."""

    index: int
    name: str
    uuid: str
    slices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The selected GPU, the UUID of the selected slice if any, and the assumption made to find it."""

    gpu: Gpu
    slice: str = ""
    assumed: str = ""


def select_entry(accelerator: str, environment: Mapping[str, str]) -> str:
    """Select the entry that names the GPU: the first of `CUDA_VISIBLE_DEVICES`, or the accelerator's own number."""
    entries = environment.get("CUDA_VISIBLE_DEVICES", accelerator.partition(":")[2] or "0")
    return entries.split(",")[0].strip()


def match_gpu(selector: str, gpus: Sequence[Gpu], order: str) -> Match | None:
    """Match a selector against all GPUs in NVML's order; None unless exactly one matches.

    The selector is a number, or a UUID or a prefix of one: ``GPU-8932f937`` is enough for CUDA if it is unique. `order`
    is `CUDA_DEVICE_ORDER`.
    """
    if selector.isdecimal():
        gpu = next((gpu for gpu in gpus if gpu.index == int(selector)), None)
        return None if gpu is None else Match(gpu=gpu, assumed=_describe_assumption(gpu, gpus, order))
    if not selector.startswith(("GPU-", "MIG-")):
        return None
    matches = list(_match_prefix(selector.lower(), gpus))
    return matches[0] if len(matches) == 1 else None


def _describe_assumption(gpu: Gpu, gpus: Sequence[Gpu], order: str) -> str:
    if gpu.slices:
        return _SLICE.format(gpu.index)
    is_uniform = len({other.name for other in gpus}) == 1
    return "" if is_uniform or order == "PCI_BUS_ID" else _ORDER.format(gpu.index)


def _match_prefix(prefix: str, gpus: Sequence[Gpu]) -> Iterator[Match]:
    for gpu in gpus:
        if gpu.uuid.lower().startswith(prefix):
            yield Match(gpu=gpu, assumed=_SLICE.format(gpu.index) if gpu.slices else "")
        yield from (Match(gpu=gpu, slice=uuid) for uuid in gpu.slices if uuid.lower().startswith(prefix))

"""Which GPU a process would get as its ordinal 0, in the order of NVML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_ORDER = (
    "CUDA numbers unlike GPUs with the fastest first, NVML by their bus: GPU {} of NVML is taken for that of CUDA. Set "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPU in CUDA_VISIBLE_DEVICES by its UUID"
)
_SLICE = "GPU {} is cut into MIG slices, and its number does not tell which slice is meant: name the slice by its UUID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as NVML lists it: its place there, its name, its UUID, and those of its MIG slices."""

    index: int
    name: str
    uuid: str
    slices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The GPU that is meant; the UUID of its slice, where one is; and what was assumed to find it."""

    gpu: Gpu
    slice: str = ""
    assumed: str = ""


def entry(accelerator: str, environment: Mapping[str, str]) -> str:
    """What names the GPU: the first of `CUDA_VISIBLE_DEVICES`, or the accelerator's own number."""
    visible = environment.get("CUDA_VISIBLE_DEVICES", accelerator.partition(":")[2] or "0")
    return visible.split(",")[0].strip()


def match(named: str, gpus: Sequence[Gpu], order: str) -> Match | None:
    """The GPU of that name; None where there is none, or more than one.

    Parameters
    ----------
    named
        A number, or a UUID or the beginning of one: ``GPU-8932f937`` is enough for CUDA where no other begins so.
    gpus
        All of them, in NVML's order.
    order
        `CUDA_DEVICE_ORDER`.
    """
    if named.isdecimal():
        found = next((gpu for gpu in gpus if gpu.index == int(named)), None)
        return None if found is None else Match(gpu=found, assumed=_assumed(found, gpus, order))
    if not named.startswith(("GPU-", "MIG-")):
        return None
    matches = list(_begin(named.lower(), gpus))
    return matches[0] if len(matches) == 1 else None


def _assumed(found: Gpu, gpus: Sequence[Gpu], order: str) -> str:
    if found.slices:
        return _SLICE.format(found.index)
    alike = len({gpu.name for gpu in gpus}) == 1
    return "" if alike or order == "PCI_BUS_ID" else _ORDER.format(found.index)


def _begin(named: str, gpus: Sequence[Gpu]) -> Iterator[Match]:
    for gpu in gpus:
        if gpu.uuid.lower().startswith(named):
            yield Match(gpu=gpu, assumed=_SLICE.format(gpu.index) if gpu.slices else "")
        yield from (Match(gpu=gpu, slice=one) for one in gpu.slices if one.lower().startswith(named))

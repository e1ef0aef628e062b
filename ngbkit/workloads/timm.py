"""Networks of the timm library, by name, with image size and keyword arguments: ``timm.model("resnet18")``.

Their names are read off timm's own source, so that neither Tab nor a check of a name waits for torch to import.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import MissingDependencyError, UnknownNameError, WorkloadError
from ngbkit.workloads import feeds, labels
from ngbkit.workloads.base import Factors, Network, Source, TensorSpec, Workload
from ngbkit.workloads.randomise import randomise, run, seeded

if TYPE_CHECKING:
    import torch

Size = int | tuple[int, int]

_REGISTERED = re.compile(r"^@register_model\b.*\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


def model(architecture: str, *, img_size: Size | None = None, name: str | None = None, **kwargs: Any) -> Workload:
    """A timm network with random weights; nothing is downloaded.

    Parameters
    ----------
    architecture
        One of ``timm.list_models()``.
    img_size
        Pixels of a side, or height and width; None for the size that the network was published with.
    name
        Its label. Default: the architecture with its arguments, ``resnet18{"img_size":160}``.
    **kwargs
        Passed to ``timm.create_model``: ``num_classes=10``, ``in_chans=1``, ``drop_path_rate=0.1``. Plain JSON values.

    Raises
    ------
    UnknownNameError
        timm, where it is installed, has no such network; the error offers the nearest names.
    WorkloadError
        An argument that JSON cannot hold, or an image size that is none.

    Examples
    --------
    >>> model("resnet18", img_size=160).name
    'resnet18{"img_size":160}'
    """
    if "pretrained" in kwargs:
        raise WorkloadError(
            "pretrained is no argument here: weights are random, and nothing is downloaded. Leave it out."
        )
    known = list_names()
    if known and architecture.partition(".")[0] not in known:
        raise UnknownNameError("timm network", architecture, known, "timm.list_models() lists them all.")
    size = None if img_size is None else _pair(img_size)
    shown = {**kwargs, **({} if img_size is None else {"img_size": img_size})}
    label = labels.join(architecture, shown)
    spec = {"architecture": architecture, "img_size": size, "kwargs": kwargs}
    return Workload(name=name or label, source="timm", spec=spec)


@cache
def list_names() -> frozenset[str]:
    """The names of ``timm.list_models()``; none where timm is not installed."""
    found = importlib.util.find_spec("timm")
    if found is None or not found.submodule_search_locations:
        return frozenset()
    sources = (Path(found.submodule_search_locations[0]) / "models").glob("*.py")
    return frozenset(name for source in sources for name in _REGISTERED.findall(source.read_text(encoding="utf-8")))


def build(workload: Workload, factors: Factors) -> Network:  # noqa: ARG001  a timm network varies no factor
    """The network, its weights drawn from the option `seed`."""
    spec, seed = workload.spec, options.get_options()["seed"]
    with seeded(seed):
        module = _create(spec["architecture"], spec["img_size"], spec["kwargs"]).eval()
    channels, *published = module.pretrained_cfg["input_size"]
    shape = (spec["kwargs"].get("in_chans", channels), *(spec["img_size"] or published))
    inputs = [TensorSpec(name="input", shape=shape)]
    randomise(module, seed, lambda: run(module, feeds.draw(inputs, {}, 2, seed)))
    return Network(inputs=inputs, module=module)


def parse(text: str) -> Workload | None:
    """The network that ``resnet18`` or ``resnet18{"img_size":160}`` names; None where timm has none of that name."""
    architecture = text.strip().partition("{")[0].strip()
    known = list_names()
    if not known and architecture.isidentifier():
        raise MissingDependencyError("timm", "torch")
    if architecture.partition(".")[0] not in known:
        return None
    _, arguments = labels.split(text)
    size = arguments.pop("img_size", None)
    if {"name", "architecture"} & arguments.keys():
        raise WorkloadError(f"{text!r} holds a name; valid are img_size and the arguments of the network itself.")
    return model(architecture, img_size=size, **arguments)


def complete(prefix: str) -> Iterator[str]:
    """The networks whose name starts with `prefix`, in timm's order."""
    return (name for name in sorted(list_names()) if name.startswith(prefix))


SOURCE = Source(
    name="timm",
    summary="the networks of the timm library, by name",
    build=build,
    parse=parse,
    complete=complete,
    preload=("torch", "timm"),
)


def _pair(size: Any) -> list[int]:
    pair = [size, size] if isinstance(size, int) else list(size) if isinstance(size, (tuple, list)) else []
    if len(pair) != 2 or not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in pair):
        raise WorkloadError(f"img_size {size!r} does not fit; valid is a number of pixels, or a height and a width.")
    return pair


def _create(architecture: str, size: list[int] | None, kwargs: Mapping[str, Any]) -> Any:
    import timm as timm_library

    # A transformer is built for a size; a convolutional network takes any and refuses the argument: the call will tell.
    attempts: list[Mapping[str, Any]] = [kwargs] if size is None else [{**kwargs, "img_size": tuple(size)}, kwargs]
    for attempt in attempts:
        try:
            return timm_library.create_model(architecture, pretrained=False, **attempt)
        except TypeError as error:
            if "'img_size'" in str(error) and attempt is not attempts[-1]:
                continue
            raise _refusal(architecture, kwargs, error) from error
        except Exception as error:
            raise _refusal(architecture, kwargs, error) from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _refusal(architecture: str, kwargs: Mapping[str, Any], error: Exception) -> WorkloadError:
    message = f"timm cannot build {labels.join(architecture, kwargs)}: {type(error).__name__}: {error}."
    takes = _arguments(architecture) if kwargs else []
    return WorkloadError(f"{message} {architecture} takes: {', '.join(takes)}." if takes else message)


def _arguments(architecture: str) -> list[str]:
    import inspect

    import timm as timm_library
    import torch

    try:
        with torch.device("meta"):
            plain: torch.nn.Module = timm_library.create_model(architecture, pretrained=False)
    except Exception:  # noqa: BLE001  it explains another error, and must not replace it
        return []
    return [name for name in inspect.signature(type(plain)).parameters if name != "kwargs"]

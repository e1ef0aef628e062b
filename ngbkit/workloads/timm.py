"""Networks of the timm library, by name, with image size and keyword arguments: ``timm.model("resnet18")``.

The names are parsed from timm's source, so that neither Tab nor the check of a name imports torch.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import labels
from ngbkit.workloads.base import Factors, Network, Source, Workload
from ngbkit.workloads.randomise import build_network, seed_generators

if TYPE_CHECKING:
    import torch

Size = int | tuple[int, int]

# The arguments of most networks that change what is computed, with the values of ImageNet.
_ARGUMENTS: Mapping[str, Any] = {"img_size": 224, "in_chans": 3, "num_classes": 1000, "drop_path_rate": 0.0}
# The arguments of timm.create_model that load weights, beside those that begin with "pretrained".
_LOADING = ("cache_dir", "checkpoint_path")
_NAME = re.compile(r"\w+(\.\w+)?")
_REGISTERED = re.compile(r"^@register_model\b.*\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


def model(architecture: str, *, img_size: Size | None = None, name: str | None = None, **kwargs: Any) -> Workload:
    """A timm network with random weights; nothing is downloaded.

    Parameters
    ----------
    architecture
        One of ``timm.list_models()``.
    img_size
        The side in pixels, or height and width; None for the network's published size.
    name
        The label. Default: the architecture with its arguments, ``resnet18{"img_size":160}``.
    **kwargs
        Arguments of ``timm.create_model``, as plain JSON values: ``num_classes=10``, ``in_chans=1``,
        ``drop_path_rate=0.1``.

    Raises
    ------
    UnknownNameError
        timm is installed and has no such network; the error lists the nearest names.
    WorkloadError
        An argument is not plain JSON, or the image size is invalid.

    Examples
    --------
    >>> model("resnet18", img_size=160).name
    'resnet18{"img_size":160}'
    """
    _check(architecture, kwargs)
    size = None if img_size is None else _parse_size(img_size)
    label = labels.join(architecture, {**kwargs, **({} if img_size is None else {"img_size": img_size})})
    spec = {"architecture": architecture, "img_size": size, "kwargs": kwargs}
    return Workload(name=name or label, source="timm", spec=spec)


@cache
def list_names() -> frozenset[str]:
    """Return the names of ``timm.list_models()``; no names if timm is not installed."""
    package = importlib.util.find_spec("timm")
    if package is None or not package.submodule_search_locations:
        return frozenset()
    sources = (Path(package.submodule_search_locations[0]) / "models").glob("*.py")
    return frozenset(name for source in sources for name in _REGISTERED.findall(source.read_text(encoding="utf-8")))


def build(workload: Workload, factors: Factors) -> Network:  # noqa: ARG001  a timm network varies no factor
    """Build the network, its weights drawn from the option `seed`."""
    spec, seed = workload.spec, options.get_options()["seed"]
    _check(spec["architecture"], spec["kwargs"])  # the description may be another machine's
    with seed_generators(seed):
        module = _create(spec["architecture"], spec["img_size"], spec["kwargs"]).eval()
    channels, *published = module.pretrained_cfg["input_size"]
    shape = (spec["kwargs"].get("in_chans", channels), *(spec["img_size"] or published))
    return build_network(module, shape, seed)


def parse(text: str) -> Workload | None:
    """Parse a timm name, ``resnet18{"img_size":160}``; None if timm is here and has none such."""
    architecture = labels.separate(text)[0].strip()
    names = list_names()
    if architecture.partition(".")[0] not in names if names else not architecture.isidentifier():
        return None
    _, arguments = labels.split(text)
    size = arguments.pop("img_size", None)
    if reserved := {"name", "architecture"} & arguments.keys():
        raise WorkloadError(
            f"invalid argument {' and '.join(sorted(reserved))} in {text!r}; expected img_size or arguments of the "
            "network itself."
        )
    return model(architecture, img_size=size, **arguments)


def complete(prefix: str) -> Iterator[str]:
    """Yield the networks whose name starts with `prefix`, in timm's order."""
    return (name for name in sorted(list_names()) if name.startswith(prefix))


def list_arguments(name: str) -> Mapping[str, Any]:
    """Return the usual arguments of a timm network; none of a name that timm lacks."""
    return _ARGUMENTS if name.partition(".")[0] in list_names() else {}


SOURCE = Source(
    name="timm",
    summary="the networks of the timm library, by name",
    build=build,
    parse=parse,
    complete=complete,
    arguments=list_arguments,
    preload=("torch", "timm"),
)


def _check(architecture: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse all that would load weights from a file or a network: torch may unpickle these, and a pickle runs code."""
    loading = sorted(name for name in kwargs if name in _LOADING or name.startswith("pretrained"))
    if loading:
        raise WorkloadError(
            f"invalid argument {', '.join(loading)} of {architecture}: weights are random, and nothing is downloaded "
            "or loaded from files. Omit it; for trained weights, use a cell or ngbkit.from_module."
        )
    names = list_names()
    # A name such as local-dir:/path or hf-hub:owner/network is of no network that timm itself defines.
    if not _NAME.fullmatch(architecture) or (names and architecture.partition(".")[0] not in names):
        raise UnknownNameError("timm network", architecture, names, "timm.list_models() lists them all.")


def _parse_size(size: Any) -> list[int]:
    sides = [size, size] if isinstance(size, int) else list(size) if isinstance(size, (tuple, list)) else []
    if len(sides) != 2 or not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in sides):
        raise WorkloadError(f"invalid img_size: got {size!r}; expected a number of pixels, or a height and a width.")
    return sides


def _create(architecture: str, size: list[int] | None, kwargs: Mapping[str, Any]) -> Any:
    import timm as timm_library

    # A transformer is built for one size. A convolutional network runs at any size and rejects the argument.
    attempts: list[Mapping[str, Any]] = [kwargs] if size is None else [{**kwargs, "img_size": tuple(size)}, kwargs]
    for attempt in attempts:
        try:
            return timm_library.create_model(architecture, pretrained=False, **attempt)
        except Exception as error:
            is_refused = isinstance(error, TypeError) and "'img_size'" in str(error)
            if not is_refused or attempt is attempts[-1]:
                raise _build_error(architecture, kwargs, error) from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _build_error(architecture: str, kwargs: Mapping[str, Any], error: Exception) -> WorkloadError:
    message = f"timm cannot build {labels.join(architecture, kwargs)}: {type(error).__name__}: {error}."
    arguments = _list_arguments(architecture) if kwargs else []
    return WorkloadError(f"{message} {architecture} takes: {', '.join(arguments)}." if arguments else message)


def _list_arguments(architecture: str) -> list[str]:
    import inspect

    import timm as timm_library
    import torch

    try:
        with torch.device("meta"):
            network: torch.nn.Module = timm_library.create_model(architecture, pretrained=False)
    except Exception:  # noqa: BLE001  the list explains another error, and must not replace it
        return []
    return [name for name in inspect.signature(type(network)).parameters if name != "kwargs"]

"""A network to run: its description, which is sent to devices, and the built network, which stays in its process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import torch

Number = int | float
Factors = Mapping[str, Number]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input of a network, without its batch dimension.

    Parameters
    ----------
    name
        The name in the ONNX graph.
    shape
        The shape of one sample: ``(3, 224, 224)``.
    dtype
        A NumPy name: ``"float32"``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
        return cls(name=data["name"], shape=tuple(data["shape"]), dtype=data["dtype"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The description from which any device can build a network: plain JSON, and the artifacts that it names.

    Parameters
    ----------
    name
        The label in the dataset.
    source
        The workload source that builds it (an entry point of ``ngbkit.workloads``): ``"timm"``.
    spec
        The source's input, as plain JSON.
    takes
        The factors that it can vary, in order; the sweep must supply those without a value in `factors`.
    factors
        The values to sweep of each factor.
    optional
        The subset of `takes` that needs no value.
    artifacts
        Content hash to local path of every file that the device needs first. Only the hashes are sent.
    python
        The interpreter on the device whose packages build and run the network; empty for that of the device's engine.
    """

    name: str
    source: str
    spec: Mapping[str, Any]
    takes: tuple[str, ...] = ()
    factors: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    artifacts: Mapping[str, Path] = field(default_factory=dict, compare=False)
    python: str = ""

    @property
    def id(self) -> str:
        """The content hash of the network, independent of its name and of the swept factors."""
        return hash_json({"source": self.source, "spec": self.spec, **self._describe_python()})

    def _describe_python(self) -> dict[str, str]:
        """The interpreter, if there is one: descriptions without it are as before there was a choice."""
        return {"python": self.python} if self.python else {}

    def with_factors(self, factors: Mapping[str, Iterable[Number]]) -> Workload:
        """Return this workload with the values of those `factors` that it takes; its own values take precedence."""
        swept = {name: tuple(values) for name, values in factors.items() if name in self.takes}
        merged = {**swept, **self.factors}
        missing = [name for name in self.takes if not merged.get(name) and name not in self.optional]
        if missing:
            needed = " and ".join(f"{name}{self._locate_factor(name)}" for name in missing)
            raise UsageError(
                f"{self.name} needs a value of {needed}. "
                f"Add {' '.join(f'--factor {name}=…' for name in missing)} or factors={{…}}."
            )
        return replace(self, factors={name: merged[name] for name in self.takes if merged.get(name)})

    def _locate_factor(self, factor: str) -> str:
        """Return the dimensions of described inputs that are a factor, in brackets; empty where none is."""
        places = [
            f"dimension {index} of {tensor['name']}"
            for tensor in self.spec.get("inputs", ())
            for index, side in enumerate(tensor["shape"], start=1)
            if side == factor
        ]
        return f" ({', '.join(places)})" if places else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "source": self.source,
            "spec": dict(self.spec),
            "takes": list(self.takes),
            "factors": {name: list(values) for name, values in self.factors.items()},
            "optional": list(self.optional),
            "artifacts": sorted(self.artifacts),
            **self._describe_python(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], locate: Callable[[str], Path] = Path) -> Workload:
        """Build the workload from the output of `to_json`; `locate` maps a content hash to a local path."""
        return cls(
            name=data["name"],
            source=data["source"],
            spec=data["spec"],
            takes=tuple(data["takes"]),
            factors={name: tuple(values) for name, values in data["factors"].items()},
            optional=tuple(data["optional"]),
            artifacts={digest: locate(digest) for digest in data["artifacts"]},
            python=data.get("python", ""),
        )


@dataclass(slots=True, kw_only=True)
class Network:
    """A workload built on a device at one value of each factor: a module, or an ONNX file, and its inputs.

    Parameters
    ----------
    inputs
        The inputs, in positional order.
    module
        The module in ``eval()``, on the CPU, its untrained statistics re-randomised; None for an ONNX file.
    onnx
        An ONNX file with its external data, if any, beside it; None for a module.
    batch_size
        The only valid batch size; None if any is valid.
    examples
        Rows to draw from, by input name, each of shape ``(rows, *shape)``, for inputs that noise cannot replace
        (token ids, masks). Inputs without an example are fed standard normal noise.
    baseline
        The meaning of `identity` for this network: ``"torch eager"``.
    """

    inputs: Sequence[TensorSpec]
    module: torch.nn.Module | None = None
    onnx: Path | None = None
    batch_size: int | None = None
    examples: Mapping[str, np.ndarray] = field(default_factory=dict)
    baseline: str = "torch eager"


def _list_no_arguments(name: str) -> Mapping[str, Any]:  # noqa: ARG001  the protocol's
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A kind of workload, an entry point of the group ``ngbkit.workloads``.

    Parameters
    ----------
    name, summary
        Its name, and one line about its networks.
    build
        ``build(workload, factors)`` builds the `Network`, in a child process on the device.
    parse
        ``parse(text)`` returns the workload that a word of a command line names, or None if another source must parse
        that word. Raises `UsageError` if the word belongs to this source and is invalid.
    complete
        ``complete(prefix)`` returns the completions of a word, for Tab.
    arguments
        ``arguments(name)`` returns the arguments that the braces after the name of a network take, each with a value
        as an example, for Tab; empty for a name of another source.
    preload
        The modules that ``build`` imports; a fork server imports them once.
    extra
        The extra of ngbkit that installs them.
    """

    name: str
    summary: str
    build: Callable[[Workload, Factors], Network]
    parse: Callable[[str], Workload | None]
    complete: Callable[[str], Iterable[str]]
    arguments: Callable[[str], Mapping[str, Any]] = _list_no_arguments
    preload: tuple[str, ...] = ("torch",)
    extra: str = "torch"


def hash_json(value: Any) -> str:
    """Hash plain JSON, whatever the order of its keys: 32 hex digits of BLAKE2b."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

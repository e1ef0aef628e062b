"""A network to run: its description, which is sent to devices, and the built network, which stays in its process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ngbkit import registry
from ngbkit.errors import UsageError
from ngbkit.workloads import dimensions
from ngbkit.workloads.dimensions import Dimension

if TYPE_CHECKING:
    import numpy as np
    import torch

Number = int | float
FactorValue = Number | str
Factors = Mapping[str, FactorValue]


Kind = Literal["file", "module", "program"]
"""A kind of network: an ONNX file, a torch module, or the program of one with the ONNX file that it was exported to."""

BATCH = "batch"
"""The name of the batch in the shape of an input."""

RANDOM = "random"
"""Stands for samples that are drawn: they calibrate, and nothing is claimed of accuracy."""

# Of a workload, what a description has only where its user made a choice.
_CHOICES = ("python", "values", "batch_axis", "calibration", "evaluation", "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input of a network.

    Parameters
    ----------
    name
        The name in the ONNX graph.
    shape
        A dimension each: a number, or the text of an expression of `BATCH` and of factors. The batch may be in any
        dimension, or in none: ``("batch", 3, 224, 224)``, ``(2, "batch", 128)``, ``("batch", "past + sequence")``,
        ``()``.
    dtype
        The name of a NumPy or ml_dtypes type, ``"float32"``, or ``"str"`` for text.
    below
        The bound of random integers, exclusive, as a dimension: the rows of the table that they index. None draws
        zeros and ones.
    role
        What the network uses the values as, if no values can be drawn for that: ``"the sizes of Resize"``. They must
        be given.
    """

    name: str
    shape: tuple[Dimension, ...]
    dtype: str = "float32"
    below: Dimension | None = None
    role: str = ""

    @property
    def batch_axis(self) -> int | None:
        """The first dimension that is the batch; None without one."""
        return self.shape.index(BATCH) if BATCH in self.shape else None

    @property
    def batch_axes(self) -> tuple[int, ...]:
        """The dimensions that depend on the batch, those of an expression included."""
        return tuple(axis for axis, side in enumerate(self.shape) if BATCH in dimensions.list_names(side))

    @property
    def factors(self) -> tuple[str, ...]:
        """The factors that its dimensions depend on, in order."""
        names = [name for dimension in self.shape for name in dimensions.list_names(dimension)]
        return tuple(dict.fromkeys(name for name in names if name != BATCH))

    def substitute(self, factors: Mapping[str, int]) -> TensorSpec:
        """Return this input at these values of factors."""
        below = None if self.below is None else dimensions.substitute(self.below, factors)
        shape = tuple(dimensions.substitute(dimension, factors) for dimension in self.shape)
        return replace(self, shape=shape, below=below)

    def bind(self, batch_size: int) -> tuple[int, ...]:
        """Return the shape at a batch size; `WorkloadError` if a factor has no value."""
        return tuple(dimensions.evaluate(dimension, {BATCH: batch_size}) for dimension in self.shape)

    def accepts(self, shape: Sequence[int]) -> bool:
        """Return whether values of this shape fit, with any number of rows along the batch and any size of a factor."""
        return len(shape) == len(self.shape) and all(
            isinstance(dimension, str) or dimension == size for dimension, size in zip(self.shape, shape, strict=True)
        )

    def format_shape(self) -> str:
        """Format the shape for people: ``(batch, 3, 224, 224)``."""
        return f"({', '.join(map(str, self.shape))})"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON: the shape of one sample where the batch comes first, as it usually does, else ``dims``."""
        is_usual = self.batch_axis == 0 and self.batch_axes == (0,)
        shape = {"shape": list(self.shape[1:])} if is_usual else {"dims": list(self.shape)}
        below = {} if self.below is None else {"below": self.below}
        role = {"role": self.role} if self.role else {}
        return {"name": self.name, **shape, "dtype": self.dtype, **below, **role}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
        """Build the input that `to_json` described."""
        shape = tuple(data["dims"]) if "dims" in data else (BATCH, *data["shape"])
        names = ("below", "role")
        return cls(
            name=data["name"], shape=shape, dtype=data["dtype"], **{key: data[key] for key in names if key in data}
        )


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
    path
        The absolute path of the file that named the network, which stays on this machine; empty for others.
    values
        The content hash of the artifact with the values of its inputs; empty if they are drawn or its source's own.
    batch_axis
        The dimension of inputs that is the batch, or None for an input without one, where the user names it.
    calibration
        The content hash of the artifact with samples to calibrate and to judge lower precisions; ``"random"`` if they
        are drawn, and empty without any.
    evaluation
        The content hash of the artifact with labelled samples, which then judge in place of those of `calibration`.
    reference
        The description of an ONNX file in f32, as `spec` of one, whose outputs those of the network are compared with
        in place of its own; empty without one.
    """

    name: str
    source: str
    spec: Mapping[str, Any]
    takes: tuple[str, ...] = ()
    factors: Mapping[str, tuple[FactorValue, ...]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    artifacts: Mapping[str, Path] = field(default_factory=dict, compare=False)
    python: str = ""
    path: str = field(default="", compare=False)
    values: str = ""
    batch_axis: Mapping[str, int | None] = field(default_factory=dict)
    calibration: str = ""
    evaluation: str = ""
    reference: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The content hash of the network and of the values given to it, whatever its name and the swept factors."""
        return hash_json({"source": self.source, "spec": self.spec, **self.describe_choices()})

    @property
    def kind(self) -> Kind:
        """The kind of network that a compiler gets."""
        return "file" if self.source == "onnx" else "program" if self.spec.get("onnx") else "module"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs that its description has; none if they are known only where it is built."""
        return tuple(map(TensorSpec.from_json, self.spec.get("inputs", ())))

    def load_source(self) -> Source:
        """Load the source that builds it; UnknownNameError if this machine has none of that name."""
        source: Source = registry.load(registry.WORKLOADS, self.source)
        return source

    def describe_choices(self) -> dict[str, Any]:
        """The user's choices, where one was made."""
        return {name: choice for name in _CHOICES if (choice := getattr(self, name))}

    def with_factors(self, factors: Mapping[str, Iterable[FactorValue]]) -> Workload:
        """Return this workload with the values of those `factors` that it takes; its own values take precedence."""
        swept = {name: tuple(values) for name, values in factors.items() if name in self.takes}
        merged = {**swept, **self.factors}
        missing = [name for name in self.takes if not merged.get(name) and name not in self.optional]
        if missing:
            needed = " and ".join(f"{name}{self._locate_factor(name)}" for name in missing)
            hint = "" if self.inputs else " A function of tensors is no model: make it the forward() of an nn.Module."
            raise UsageError(
                f"{self.name} needs a value of {needed}. "
                f"Add {' '.join(f'--factor {name}=…' for name in missing)} or factors={{…}}.{hint}"
            )
        return replace(self, factors={name: merged[name] for name in self.takes if merged.get(name)})

    def _locate_factor(self, factor: str) -> str:
        """Return the dimensions of described inputs that are a factor, in brackets; empty where none is."""
        places = [
            f"dimension {index} of {spec.name}"
            for spec in self.inputs
            for index, dimension in enumerate(spec.shape)
            if dimension == factor
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
            **self.describe_choices(),
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
            **{name: data[name] for name in _CHOICES if name in data},
        )


@dataclass(slots=True, kw_only=True)
class Network:
    """A workload built on a device at one value of each factor: a module, or an ONNX file, and its inputs.

    Parameters
    ----------
    inputs
        The inputs, in positional order, without a factor in their shapes.
    module
        The module in ``eval()``, on the CPU, its untrained statistics re-randomised; None for an ONNX file.
    onnx
        An ONNX file with its external data, if any, beside it; None for a module.
    batch_size
        The only valid batch size; None if any is valid. It is 1 for a network without a batch, whose samples are calls.
    batch_reason
        Why no other batch size is valid, as the network was seen to behave; empty where its description says it.
    examples
        Values by input name, for inputs that noise cannot replace (token ids, masks): of the input's shape, with any
        number of rows along its batch, which are repeated. Inputs without an example are drawn.
    baseline
        The meaning of `identity` for this network: ``"torch eager"``.
    """

    inputs: Sequence[TensorSpec]
    module: torch.nn.Module | None = None
    onnx: Path | None = None
    batch_size: int | None = None
    batch_reason: str = ""
    examples: Mapping[str, np.ndarray] = field(default_factory=dict)
    baseline: str = "torch eager"


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
        that word. Raises `UsageError` if the word belongs to this source and is invalid. By default no word names its
        networks.
    complete
        ``complete(prefix)`` returns the completions of a word, for Tab.
    arguments
        ``arguments(name)`` returns the arguments that the braces after the name of a network take, each with a value
        as an example, for Tab; empty for a name of another source.
    with_batch_axis
        ``with_batch_axis(workload, axes)`` returns the workload whose batch is where the user says. None for a source
        whose networks have it first.
    preload
        The modules that ``build`` imports; a fork server imports them once.
    extra
        The extra of ngbkit that installs them.
    text_factors
        Whether its networks take factors whose values are texts, such as the name of a variant.
    """

    name: str
    summary: str
    build: Callable[[Workload, Factors], Network]
    parse: Callable[[str], Workload | None] = lambda _: None
    complete: Callable[[str], Iterable[str]] = lambda _: ()
    arguments: Callable[[str], Mapping[str, Any]] = lambda _: {}
    with_batch_axis: Callable[[Workload, Mapping[str, int | None]], Workload] | None = None
    preload: tuple[str, ...] = ("torch",)
    extra: str = "torch"
    text_factors: bool = False


def hash_json(value: Any) -> str:
    """Hash plain JSON, whatever the order of its keys: 32 hex digits of BLAKE2b."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

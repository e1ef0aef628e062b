"""What a network to run is: its description, which travels, and the built thing, which never leaves its process."""

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
        As the ONNX graph calls it.
    shape
        Of one sample: ``(3, 224, 224)``.
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
    """A network to run, described so that any device can build it: plain JSON and the artifacts it names.

    Parameters
    ----------
    name
        Its label in the dataset.
    source
        Which workload source builds it (an entry point of ``ngbkit.workloads``): ``"timm"``.
    spec
        What that source needs, as plain JSON.
    takes
        The factors it can vary, in order; those without a value in `factors` must come from the sweep.
    factors
        The values to sweep of each factor.
    optional
        Which of `takes` may be left without a value.
    artifacts
        Content hash to local path of every file that must be on the device first. The path stays here; only hashes
        travel.
    """

    name: str
    source: str
    spec: Mapping[str, Any]
    takes: tuple[str, ...] = ()
    factors: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    artifacts: Mapping[str, Path] = field(default_factory=dict, compare=False)

    @property
    def id(self) -> str:
        """A content hash of what is built, whatever it is called and whichever factors are swept."""
        return content_hash({"source": self.source, "spec": self.spec})

    def with_factors(self, factors: Mapping[str, Iterable[Number]]) -> Workload:
        """This workload with the values of those `factors` that it takes; values of its own win."""
        taken = {name: tuple(values) for name, values in factors.items() if name in self.takes}
        merged = {**taken, **self.factors}
        missing = [name for name in self.takes if not merged.get(name) and name not in self.optional]
        if missing:
            raise UsageError(
                f"{self.name} needs a value of {' and '.join(missing)}. "
                f"Add {' '.join(f'--factor {name}=…' for name in missing)} or factors={{…}} to the sweep."
            )
        return replace(self, factors={name: merged[name] for name in self.takes if merged.get(name)})

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "source": self.source,
            "spec": dict(self.spec),
            "takes": list(self.takes),
            "factors": {name: list(values) for name, values in self.factors.items()},
            "optional": list(self.optional),
            "artifacts": sorted(self.artifacts),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], locate: Callable[[str], Path] = Path) -> Workload:
        """The workload that `to_json` described; `locate` turns a content hash into the path of that artifact here."""
        return cls(
            name=data["name"],
            source=data["source"],
            spec=data["spec"],
            takes=tuple(data["takes"]),
            factors={name: tuple(values) for name, values in data["factors"].items()},
            optional=tuple(data["optional"]),
            artifacts={digest: locate(digest) for digest in data["artifacts"]},
        )


@dataclass(slots=True, kw_only=True)
class Network:
    """A workload built on a device at one value of each factor: a module, or an ONNX file, with what it is fed.

    Parameters
    ----------
    inputs
        In the order in which they are passed.
    module
        In ``eval()``, on the CPU, its untrained statistics re-randomised; None for an ONNX file.
    onnx
        An ONNX file whose external data, if any, lies beside it; None for a module.
    batch_size
        The only batch size it takes; None where any will do.
    examples
        Rows to draw from, by input name, each of shape ``(rows, *shape)``, for inputs that noise cannot stand in for
        (token ids, masks). Inputs without an example are fed standard normal noise.
    baseline
        What `identity` means for it: ``"torch eager"``.
    """

    inputs: Sequence[TensorSpec]
    module: torch.nn.Module | None = None
    onnx: Path | None = None
    batch_size: int | None = None
    examples: Mapping[str, np.ndarray] = field(default_factory=dict)
    baseline: str = "torch eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A kind of workload, found by entry point in the group ``ngbkit.workloads``.

    Parameters
    ----------
    name, summary
        What it is called, and one line on what it offers.
    build
        ``build(workload, factors)`` makes the `Network`, in a child process on the device.
    parse
        ``parse(text)`` gives the workload that a word on a command line names, or None where the word is not this
        source's. Raises `UsageError` where it is, and is wrong.
    complete
        ``complete(prefix)`` gives the words that could follow, for Tab.
    preload
        The modules that building needs, which a fork server imports once.
    """

    name: str
    summary: str
    build: Callable[[Workload, Factors], Network]
    parse: Callable[[str], Workload | None]
    complete: Callable[[str], Iterable[str]]
    preload: tuple[str, ...] = ("torch",)


def content_hash(value: Any) -> str:
    """A hash of plain JSON that does not depend on the order of its keys: 32 hex digits of BLAKE2b."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

"""What the tests of figures share: small sweeps whose records are made up, and a reader of specifications."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import vl_convert

from ngbkit.dataset import assembly as datasets
from ngbkit.dataset import synthetic
from ngbkit.dataset.storage import Data
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Failure
from ngbkit.workloads.base import Workload


def network(name: str, **factors: tuple[float, ...]) -> Workload:
    return Workload(name=name, source="timm", spec={"name": name}, takes=tuple(factors), factors=factors)


def sweep(*workloads: Workload, compilers=("identity", "openvino"), batch_sizes=(1, 4), **more) -> Sweep:
    return Sweep(list(workloads) or [network("net")], compilers, batch_sizes, repeats=10, **more)


def measured(*workloads: Workload, **more: Any) -> Data:
    """A dataset whose numbers are made up."""
    return synthetic.dataset(sweep(*workloads, **more))


def crashing(asked: Sweep, compiler: str, batch_size: int) -> Data:
    """The same, of which one compiler crashed at one batch size."""
    trials = [one for one in asked.trials() if (one.compiler, one.batch_size) == (compiler, batch_size)]
    failures = [Failure(trial_id=one.id, status="crashed", stage="measure", error="signal 11") for one in trials]
    return datasets.assemble(asked, [*synthetic.records(asked), *failures])


def unlike(asked: Sweep, compiler: str) -> Data:
    """The same, of which one compiler was timed in another precision."""
    found = [
        replace(one, contract=replace(one.contract, precision="bf16")) if trial.compiler == compiler else one
        for trial, one in zip(asked.trials(), synthetic.records(asked), strict=True)
    ]
    return datasets.assemble(asked, found)


class Spec:
    """A chart's specification, which altair has checked against Vega-Lite's schema, read as a person would."""

    def __init__(self, chart: Any) -> None:
        self.spec: dict[str, Any] = chart.to_dict()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows of all data in the chart; an empty text is None."""
        return [row for one in self._data(self.spec) for row in read(one)]

    @property
    def subtitle(self) -> str:
        """What stands below the title."""
        return "\n".join(self.spec["title"]["subtitle"])

    def marks(self) -> list[str]:
        """The marks, in the order in which they are drawn."""
        return [one["mark"]["type"] for one in _walk(self.spec) if "mark" in one]

    def scales(self, channel: str) -> list[dict[str, Any]]:
        """The scales of a channel, of every layer that has one."""
        found = (one["encoding"].get(channel) for one in _walk(self.spec) if "encoding" in one)
        return [one["scale"] for one in found if one and one.get("scale")]

    def texts(self) -> set[str]:
        """Every text of the SVG that is made of it."""
        root = ElementTree.fromstring(vl_convert.vegalite_to_svg(self.spec))
        return {element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")}

    def _data(self, spec: dict[str, Any]) -> Iterator[str]:
        yield from spec.get("datasets", {}).values()
        for one in _walk(spec):
            if "values" in one.get("data", {}):
                yield one["data"]["values"]


def _walk(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield spec
    inner = spec.get("spec")
    for part in [*([inner] if inner else []), *(one for key in _PARTS for one in spec.get(key, []))]:
        yield from _walk(part)


_PARTS = ("layer", "concat", "hconcat", "vconcat")


def read(text: str) -> list[dict[str, Any]]:
    """The rows of a chart's data; an empty text is None."""
    assert isinstance(text, str), "data is inside as CSV"
    return [{name: _value(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(text))]


def _value(text: str) -> Any:
    if text == "":
        return None
    try:
        return float(text)
    except ValueError:
        return text

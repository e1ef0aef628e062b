"""Small sweeps with synthetic records, and a reader of specifications, for the tests of figures."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import synthetic
import vl_convert
import xarray as xr
from synthetic_records import build_network as network

from ngbkit import figures
from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.dataset.storage import Data
from ngbkit.device.serving.load import LoadTest
from ngbkit.figures import theme
from ngbkit.metrics.pairing import compare
from ngbkit.metrics.serving.capacities import CapacitySearch, list_columns, parse_service
from ngbkit.runs.capacity import build_question, build_sweep, save_search
from ngbkit.sweep.low_precision import COSTS
from ngbkit.sweep.records import Failure
from ngbkit.workloads.base import Workload


def sweep(*workloads: Workload, compilers=("identity", "openvino"), batch_sizes=(1, 4), **more) -> Sweep:
    return Sweep(list(workloads) or [network("net")], compilers, batch_sizes, repeats=10, **more)


def measured(*workloads: Workload, **more: Any) -> Data:
    """A dataset of synthetic records."""
    return synthetic.make_dataset(sweep(*workloads, **more))


def crashing(sweep: Sweep, compiler: str, batch_size: int) -> Data:
    """A dataset in which one compiler crashed at one batch size."""
    trials = [trial for trial in sweep.trials() if (trial.compiler, trial.batch_size) == (compiler, batch_size)]
    failures = [Failure(trial_id=trial.id, status="crashed", stage="measure", error="signal 11") for trial in trials]
    return datasets.assemble(sweep, [*synthetic.make_records(sweep), *failures])


def unlike(sweep: Sweep, compiler: str) -> Data:
    """A dataset in which one compiler was timed in another precision."""
    records = [
        replace(record, contract=replace(record.contract, precision="bf16")) if trial.compiler == compiler else record
        for trial, record in zip(sweep.trials(), synthetic.make_records(sweep), strict=True)
    ]
    return datasets.assemble(sweep, records)


def flipping() -> xr.Dataset:
    """Two networks whose order reverses between two compilers, and one that is the slowest in both."""
    data = measured(*map(network, "abc"), batch_sizes=[1])
    times = {"a": (2.0, 2.2), "b": (3.0, 1.0), "c": (9.0, 8.0)}
    noise = np.random.default_rng(0).normal(1, 0.01, data["latency"].shape)
    latency = data["latency"].copy(data=noise)
    for name, pair in times.items():
        for compiler, seconds in zip(("identity", "openvino"), pair, strict=True):
            latency.loc[{"workload": name, "compiler": compiler}] *= seconds
    return data.assign(latency=latency, throughput=1 / latency.median("repeat")).drop_vars(
        ["anchor_latency", "anchor_round"], errors="ignore"
    )


def roofed() -> xr.Dataset:
    """A dataset with the operations of its networks and the peaks of its device."""
    data = measured(*map(network, "ab"))
    facts = {"macs": 1e9, "weight_bytes": 4e7, "input_bytes": 6e5, "output_bytes": 4e3}
    peaks = {"cpu": {"peaks": {"flops": 1e12, "bytes_per_s": 2e10}}}
    coords = {name: ("workload", [value, value]) for name, value in facts.items()}
    return data.assign_coords(coords).assign_attrs(environments=json.dumps(peaks))


def add_costs(data: xr.Dataset) -> xr.Dataset:
    """The dataset with the cost of each column over a hundred samples, of which all answer the same right."""
    costs = {"agreement": 0.98, "relative_error": 0.05, "relative_error_sd": 0.02, "sqnr": 26.0, "sqnr_sd": 2.0}
    values = {"evaluated_samples": 100.0, "accuracy": 0.9, **costs}
    correct = base64.b64encode(np.packbits(np.arange(100) >= 10).tobytes()).decode()
    facts = xr.full_like(data["facts"], json.dumps({"evaluated_samples": 100, "correct": correct}))
    costed = {name: xr.full_like(data["throughput"], value) for name, value in values.items()}
    return data.assign({**costed, "facts": facts})


def change_texts(data: xr.Dataset, name: str, **fields: object) -> xr.Dataset:
    """The dataset with other fields in the JSON of a variable."""
    texts = [json.dumps({**json.loads(text), **fields}) for text in data[name].values.ravel()]
    return data.assign({name: data[name].copy(data=np.reshape(np.array(texts, object), data[name].shape))})


LOW = 'openvino{"precision":"bf16"}'
COSTED = ("identity", "openvino", LOW)


def costed() -> xr.Dataset:
    return add_costs(measured(*map(network, "ab"), compilers=COSTED))


def build_costed(**costs: float) -> xr.Dataset:
    """Build a dataset in which the column in bf16 has costs of its own, and is twice as fast as OpenVINO's f32."""
    data = add_costs(measured(network("net"), compilers=COSTED, batch_sizes=[1]))
    latency = data["latency"].copy()
    latency.loc[{"compiler": LOW}] = data["latency"].sel(compiler="openvino") / 2
    changed = data.assign(latency=latency)
    is_low = data["compiler"] == LOW
    return changed.assign({name: data[name].where(~is_low, value) for name, value in costs.items()})


def build_test(rate: float, valid: bool) -> LoadTest:
    """Build a test of LoadGen."""
    return LoadTest(
        rate=rate,
        valid=valid,
        requests=1000,
        late=0 if valid else 300,
        latency=0.002 * rate,
        mean_latency=0.001 * rate,
        completed_per_s=rate,
        calls=500,
        busy=0.5,
        contended=False,
        loadgen="6.0.17",
    )


def record_tests(data: Data, tests: Sequence[LoadTest] = (), deadline: str = "100ms") -> None:
    """Record tests of LoadGen, as if they had been run, for each network and compiler; by default a whole search."""
    service = parse_service(deadline)
    tests = tests or [build_test(rate, rate < 44) for rate in (40.0, 44.0, 40.0, 44.0)]
    for column in list_columns(data, service, {}):
        if column.batch_sizes:
            question = build_question(build_sweep(data, column), service)
            save_search(question, CapacitySearch(started_at=time.time(), tests=tuple(tests)))


OF_COSTS = (*COSTS, "accuracy_change", "precision_gain", "tradeoff")
"""The charts of data with samples that judge a lower precision."""


def list_charts() -> list[str]:
    """Every chart of ngbkit, by name."""
    return [*figures.list_figures(), "changes"]


def draw_example(name: str) -> Any:
    """Draw a chart of synthetic data, whichever it needs."""
    if name == "changes":
        return compare(measured(), measured()).plot()
    examples = {"reversals": flipping, "roofline": roofed, "tcr": roofed, **dict.fromkeys(OF_COSTS, costed)}
    return draw_figure(name, examples.get(name, _measure_blocks)())


def draw_figure(name: str, data: Data, **arguments: Any) -> Any:
    """Draw a chart of a dataset."""
    return getattr(figures, name)(data, **arguments)


def _measure_blocks() -> Data:
    """Blocks of two widths and depths, some of whose trials failed in each way."""
    grid = sweep(network("block", width=(8, 16), depth=(1, 2)), compilers=("identity", "openvino", "tvm"))
    statuses = itertools.cycle(theme.STATUS_SHAPES)
    failures = [
        Failure(trial_id=trial.id, status=next(statuses), stage="measure", error="for a reason")
        for trial in grid.trials()
        if trial.compiler == "tvm" and dict(trial.factors)["depth"] == 2
    ]
    return datasets.assemble(grid, [*synthetic.make_records(grid), *failures])


class Spec:
    """The parts of a chart's specification that a reader sees; altair checks it against Vega-Lite's schema."""

    def __init__(self, chart: Any) -> None:
        self.spec: dict[str, Any] = chart.to_dict()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows of all data in the chart; an empty text is None."""
        return [row for text in self._data(self.spec) for row in read(text)]

    @property
    def subtitle(self) -> str:
        """The lines below the title."""
        return "\n".join(self.spec["title"]["subtitle"])

    def marks(self) -> list[str]:
        """The marks, in the order in which they are drawn."""
        return [part["mark"]["type"] for part in _walk(self.spec) if "mark" in part]

    def scales(self, channel: str) -> list[dict[str, Any]]:
        """The scales of a channel, of every layer that has one."""
        encodings = (layer["encoding"].get(channel) for layer in _walk(self.spec) if "encoding" in layer)
        return [encoding["scale"] for encoding in encodings if encoding and encoding.get("scale")]

    def texts(self) -> set[str]:
        """Every text of the rendered SVG."""
        root = ElementTree.fromstring(vl_convert.vegalite_to_svg(self.spec))
        tags = [f"{{http://www.w3.org/2000/svg}}{name}" for name in ("text", "tspan")]  # a line of a text is a tspan
        return {element.text or "" for tag in tags for element in root.iter(tag)}

    def items(self, mark: str) -> list[dict[str, Any]]:
        """Every mark of a kind as it is drawn (``"rule"``, ``"symbol"``), with its place in pixels of its panel."""
        scene = vl_convert.vegalite_to_scenegraph(self.spec)["scenegraph"]
        return [item for part in _walk_scene(scene) if part.get("marktype") == mark for item in part["items"]]

    def _data(self, spec: dict[str, Any]) -> Iterator[str]:
        yield from spec.get("datasets", {}).values()
        for part in _walk(spec):
            if "values" in part.get("data", {}):
                yield part["data"]["values"]


def _walk(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield spec
    nested = spec.get("spec")
    for part in [*([nested] if nested else []), *(part for key in _PARTS for part in spec.get(key, []))]:
        yield from _walk(part)


def _walk_scene(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield part
    for item in part.get("items", []):
        yield from _walk_scene(item)


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

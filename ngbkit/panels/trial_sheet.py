"""The sheet of a trial in words: its results, what was timed, the machine, or why it failed; each with a help text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from htpy import Element, caption, div, small, table, tbody, td, th, tr

from ngbkit import metrics
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.unchecked import explain_inconclusive
from ngbkit.panels import trial as trials
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import NOT_CHECKED
from ngbkit.user_text import format_seconds, format_share, format_size

# A fact of a compiler may be a whole log.
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetLine:
    """A line of a sheet: a name, its value in words, and what the name means."""

    name: str
    text: str
    help: str


_STATUSES = {
    "ok": "measured; its outputs agree with the reference",
    NOT_CHECKED: "measured; its outputs were not compared",
    "failed": "failed: the compiler raised an error",
    "timeout": "failed: it took too long",
    "crashed": "failed: its process crashed",
    "out-of-memory": "failed: the memory was too small",
    "not-equivalent": "failed: its outputs differ from the reference",
    "unsupported": "not supported by the compiler",
    "pending": "not measured yet",
    "predicted": "predicted, not measured",
}


def _format_percent(value: float) -> str:
    return format_share(value / 100)


def _format_energy(value: float) -> str:
    return f"{value:.3g} J" if value >= 1 else f"{1e3 * value:.3g} mJ"


_PLAIN = "{:.3g}".format
# By variable: its name for people, its help, and its format.
_VARIABLES: Mapping[str, tuple[str, str, Callable[[float], str]]] = {
    "compile_time": ("compiling", "conversion and compilation, with empty caches", format_seconds),
    "compile_time_warm": (
        "compiling again",
        "in a new process, with what the first one left in the compiler's cache",
        format_seconds,
    ),
    "first_call_time": ("first call", "the first call after compiling, which often does more work", format_seconds),
    "rmse_ratio": (
        "error against the reference",
        "root-mean-square error of the outputs against a float64 run of the uncompiled network",
        lambda value: f"{value:.3g} times that of {BASELINE}",
    ),
    "max_abs_error": ("largest error", "the largest difference of an output from that float64 run", _PLAIN),
    "peak_memory": ("memory", "the most resident memory of the measuring process", format_size),
    "minor_faults": ("page faults a call", "pages that the kernel gave to the process in a call", _PLAIN),
    "major_faults": ("pages from a disk", "pages that were read from a disk in a call", _PLAIN),
    "involuntary_switches": (
        "lost cores",
        "times in a call that the kernel took a core from the process, for other work",
        _PLAIN,
    ),
    "cpu_percent": ("CPU use", "of all cores of the machine, while measuring", _format_percent),
    "gpu_percent": ("GPU use", "of the accelerator, while measuring", _format_percent),
    "gpu_memory": ("GPU memory", "the most memory of the accelerator, while measuring", format_size),
    "energy": ("energy a call", "of the accelerator; on a CPU, of its packages with their memory", _format_energy),
}
_TRANSFERS = {
    "included": "with the copies to the chip and back",
    "excluded": "without the copies to the chip and back",
}
_MACHINE: Mapping[str, Callable[[Any], str]] = {
    "chip": str,
    "cores_usable": lambda value: f"{value} cores",
    "memory_bytes": lambda value: f"{format_size(value)} of memory",
    "system": str,
    "governor": lambda value: f"clock governor {value}",
    "python": lambda value: f"Python {value}",
    "ngbkit_commit": lambda value: f"ngbkit of commit {value}",
}


def render(data: Data, trial: Mapping[str, Any]) -> Element:
    """Render the sheet of a trial of `trial.list_trials`."""
    lines = (
        tr[th(scope="row", title=line.help)[line.name], td[line.text, " ", small[line.help]]]
        for line in describe(data, trial)
    )
    sheet = table(class_="sheet")[caption[trials.to_text(trial)], tbody[lines]]
    return div(class_="scroll", tabindex="0", role="region", aria_label="details")[sheet]


def describe(data: Data, trial: Mapping[str, Any]) -> list[SheetLine]:
    """Describe a trial of `trial.list_trials`, line by line."""
    node, results = trials.select_trial(data, trial)
    environment = read_environments(results).get(str(trial["device"]), {})
    machine = ", ".join(write(environment[key]) for key, write in _MACHINE.items() if environment.get(key))
    lines = [
        *_describe_status(results),
        *_describe_estimates(node, trial),
        *_describe_samples(results),
        SheetLine(name="what was timed", text=_describe_contract(results), help="the contents of a timed call"),
        *_describe_variables(results, trial),
        SheetLine(name="the compiler reports", text=_describe_facts(results), help="its work on the graph"),
        SheetLine(name="machine", text=machine, help="the device when it measured"),
    ]
    return [line for line in lines if line.text]


def _describe_status(results: xr.Dataset) -> Iterator[SheetLine]:
    status, error = str(results["status"].item()), str(results["error"].item())
    yield SheetLine(name="result", text=_STATUSES.get(status, status), help=f"the status {status}")
    yield SheetLine(name="reason", text=error, help="the message of the compiler, or of the check of its outputs")
    origin = str(results["origin"].item()) if "origin" in results else ""
    yield SheetLine(name="measured by", text=f"run {origin}" if origin else "", help="the earlier run that measured it")


def _describe_estimates(node: xr.Dataset, trial: Mapping[str, Any]) -> Iterator[SheetLine]:
    """Describe the throughput and the speed-up of a trial with their intervals, as far as it has them."""
    group = node.sel({key: value for key, value in trial.items() if key in node.dims and key != "compiler"})
    interval = f"with its {100 * LEVEL:.0f} % interval"
    throughput, inconclusive = _estimate(metrics.throughput, group, trial)
    speedup, is_unsure = _estimate(metrics.speedup, group, trial)
    text = f"{throughput} samples/s" if throughput else ""
    yield SheetLine(name="throughput", text=text, help=f"the batch size over the median time of a call, {interval}")
    text = "" if trial["compiler"] == BASELINE else speedup
    yield SheetLine(name="speed-up", text=text, help=f"throughput over that of {BASELINE} in its rounds, {interval}")
    if inconclusive or is_unsure:
        reason = _explain_inconclusive(group, trial)
        yield SheetLine(name="not conclusive", text=reason, help="its interval does not answer the question")


def _estimate(metric: Callable[..., Any], group: xr.Dataset, trial: Mapping[str, Any]) -> tuple[str, bool]:
    """Estimate a metric of a trial as a text, empty without a number, and whether it is not conclusive."""
    try:
        values = metric(group, ci=LEVEL)
    except MetricError:
        return "", False
    column = values.sel(compiler=trial["compiler"]) if "compiler" in values.dims else values
    name = next(iter(values.data_vars))
    estimate = Estimate(*(column[key].item() for key in (name, "ci_low", "ci_high", "conclusive")))
    if not np.isfinite(estimate):
        return "", False
    return str(estimate), not estimate.conclusive


def _explain_inconclusive(group: xr.Dataset, trial: Mapping[str, Any]) -> str:
    """Explain why the estimates of a trial are not conclusive."""
    column = group.sel(compiler=trial["compiler"]) if "compiler" in group.dims else group
    return "its outputs were not checked" if bool(find_unchecked(column).any()) else explain_inconclusive(group)


def _describe_samples(results: xr.Dataset) -> Iterator[SheetLine]:
    if "latency" not in results or not results["latency"].notnull().any():
        return
    values = results["latency"].values
    values = values[~np.isnan(values)]
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    text = f"{format_seconds(median)}; 90 % of them between {format_seconds(low)} and {format_seconds(high)}"
    yield SheetLine(name="time of a call", text=text, help="the median of the samples, of a call with the whole batch")
    contended = int((results["contended"].values > 0).sum()) if "contended" in results else 0
    suffix = f", {contended} of them while other work used the cores" if contended else ""
    yield SheetLine(name="samples", text=f"{len(values)}{suffix}", help="timed calls; every one is kept")


def _describe_variables(results: xr.Dataset, trial: Mapping[str, Any]) -> Iterator[SheetLine]:
    """Describe the variables of a trial that say something: the baseline compiles nothing, and has no own error."""
    for variable, (name, help_text, write) in _VARIABLES.items():
        value = results[variable].item() if variable in results else np.nan
        is_trivial = trial["compiler"] == BASELINE and (value == 0 or variable == "rmse_ratio")
        if np.isfinite(value) and not is_trivial:
            yield SheetLine(name=name, text=write(value), help=help_text)


def _describe_contract(results: xr.Dataset) -> str:
    contract = _parse(results, "contract")
    if not contract:
        return ""
    threads, overlap = contract.get("threads"), contract.get("overlap", 1)
    parts = [
        f"a call of {contract.get('runtime', '')}".strip(),
        f"in {contract['precision']}" if contract.get("precision") else "",
        f"on {threads} thread{'s' if threads != 1 else ''}" if threads else "",
        f"with memory {contract['memory']}" if contract.get("memory") else "",
        _TRANSFERS.get(contract.get("transfers", ""), ""),
        "" if contract.get("synchronised", True) else "without waiting for its outputs",
        "timed by events of the GPU" if contract.get("clock") == "events" else "",
        "with an emptied cache of the GPU" if contract.get("flushed") else "",
        f"with {overlap} requests in flight" if overlap > 1 else "",
    ]
    notes = f" ({contract['notes']})" if contract.get("notes") else ""
    return ", ".join(filter(None, parts)) + notes


def _describe_facts(results: xr.Dataset) -> str:
    facts = {name: value for name, value in _parse(results, "facts").items() if value not in ("", None, [], {})}
    text = "; ".join(f"{_format_name(name)} {_format_fact(name, value)}" for name, value in facts.items())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _parse(results: xr.Dataset, name: str) -> dict[str, Any]:
    text = results[name].item() if name in results else ""
    return dict(json.loads(text)) if text else {}


def _format_name(name: str) -> str:
    for suffix in ("_bytes", "_s", "_percent"):
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def _format_fact(name: str, value: Any) -> str:
    """Write a fact in the reader's scale, by the unit in its name."""
    if isinstance(value, Mapping):
        unit = next((suffix for suffix in ("_bytes", "_s", "_percent") if name.endswith(suffix)), "")
        return ", ".join(
            f"{_format_name(str(key))} {_format_fact(f'{key}{unit}', item)}" for key, item in value.items()
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        for suffix, write in (("_bytes", format_size), ("_s", format_seconds), ("_percent", _format_percent)):
            if name.endswith(suffix):
                return write(value)
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

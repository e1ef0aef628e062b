"""The variables of the dataset: those that records fill, and those that are computed from several of their fields.

A variable that one field of a measurement fills is declared there, in `ngbkit.sweep.records`.
"""

from __future__ import annotations

from dataclasses import fields, replace

from ngbkit.sweep.records import STATUSES, Measurement
from ngbkit.sweep.variable import Variable

DIMS = ("device", "workload", "compiler", "batch_size", "repeat")

NO_ROUND = -1
"""Fills `round` where there is no sample: an integer survives a file unchanged, and NaN would make it a float."""


WAVE_STRIDE = 1_000_000
"""Processes that are started again number their rounds from at least so much further on."""


def _declare_fact(name: str, long_name: str, comment: str = "NaN where it does not tell", symbol: str = "") -> Variable:
    return Variable(name, "1", long_name, comment, fills=name, symbol=symbol)


_SAMPLES = (
    Variable(
        "latency",
        "s",
        "latency of one inference of the whole batch",
        "NaN where there is no sample; the mean of calls_per_sample calls in a row",
        dims="sample",
    ),
    Variable("round", "1", "interleaving round of a sample", f"{NO_ROUND} where there is no sample", dims="sample"),
    Variable(
        "contended",
        "1",
        "whether something else had the cores for a part of that sample",
        "1 where it had, else 0; estimates leave such samples out where enough others remain",
        dims="sample",
    ),
    Variable(
        "anchor_latency",
        "s",
        "latency of identity at batch size 1, in the same rounds as the compilers of this batch size",
        "ties together what was measured at different times",
        dims="anchor sample",
    ),
    Variable(
        "anchor_round",
        "1",
        "interleaving round of a sample of the anchor",
        f"{NO_ROUND} where there is no sample",
        dims="anchor sample",
    ),
    Variable(
        "anchor_contended", "1", "whether a sample of the anchor was contended", "1 if it was", dims="anchor sample"
    ),
)

_TIES = (
    Variable(
        "tie_latency",
        "s",
        "latency of identity of the first network at this batch size, in the same rounds as a part of the networks",
        "ties together networks that did not take turns with each other",
        dims="anchor sample",
    ),
    Variable(
        "tie_round",
        "1",
        "interleaving round of a sample of the tie",
        f"{NO_ROUND} where there is no sample",
        dims="anchor sample",
    ),
    Variable("tie_contended", "1", "whether a sample of the tie was contended", "1 if it was", dims="anchor sample"),
    Variable("tie_bundle", "1", "number of the set of trials that the tie took turns with", dims="anchor"),
    Variable("tie", "1", "number of the trial that the tie repeats", dims="anchor"),
)

FIELDS = tuple(
    replace(field.metadata["variable"], fills=field.name)
    for field in fields(Measurement)
    if "variable" in field.metadata
)
"""Those that a field of a measurement fills."""

FACTS = (
    _declare_fact("nodes_before", "operators of the graph that the compiler was given"),
    _declare_fact("nodes_after", "operators that are executed in a call"),
    _declare_fact("nodes_fused", "executed operators that do the work of more than one"),
    _declare_fact("fallbacks", "executed operators that run elsewhere than asked for"),
    _declare_fact("graph_breaks", "breaks of the captured graph", "NaN where there is no such thing"),
)
"""Those that a fact of a record fills: what each compiler reports of its work, under names that mean the same."""

COSTS = (
    _declare_fact(
        "agreement",
        "share of samples with the first answer of the uncompiled network, or of its reference",
        "the largest number of the first output; NaN without samples",
    ),
    _declare_fact(
        "relative_error",
        "error against the uncompiled network, or its reference, relative to its outputs; mean over samples",
        "of the worst output; NaN without samples",
    ),
    _declare_fact("relative_error_sd", "standard deviation of relative_error over samples", "NaN without samples"),
    _declare_fact(
        "sqnr",
        "signal to quantisation noise against the uncompiled network, or its reference; mean over samples",
        "decibels, of the worst output; NaN without samples",
        symbol="dB",
    ),
    _declare_fact("sqnr_sd", "standard deviation of sqnr over samples", "decibels; NaN without samples", symbol="dB"),
    _declare_fact("accuracy", "share of samples that are answered right", "by the user's labels; NaN without"),
    _declare_fact("evaluated_samples", "samples that judge a precision", "NaN without samples"),
)
"""The cost of a precision in answers, where the user gave samples that judge it; a dataset without any lacks them."""

LOWERED = (
    Variable("file_bytes", "byte", "size of the file that the runtime reads", "with its weights", fills="file_bytes"),
    _declare_fact("f32_layers", "layers of a quantised network that are computed in f32", "of those that multiply"),
    _declare_fact("f32_share", "share of the layers of a quantised network that are computed in f32"),
)
"""The work of a runtime on a lowered network; a dataset without any lacks them."""

_COMPUTED = (
    Variable(
        "throughput",
        "s-1",
        "throughput",
        "samples per second: batch size over the median latency",
        symbol="samples/s",
    ),
    Variable(
        "rmse_ratio",
        "1",
        "error against the float64 reference, over the baseline's own",
        "an exact baseline counts as one rounding of float32 (2^-24); 1 where both are exact",
    ),
    Variable("contract", "", "what a timed call includes, as JSON"),
    Variable("status", "", "what became of the trial", f"one of {', '.join(STATUSES)}"),
    Variable("error", "", "type and message of a failure, or why the outputs were not checked"),
    Variable("facts", "", "what else the trial left behind, as JSON"),
    Variable(
        "profile",
        "",
        "the kernels that the runtime executed, their seconds by round, and the nodes they compute, as JSON",
        "empty without profile; a dataset without any lacks it",
    ),
    Variable("origin", "", "the earlier run that measured the trial", "empty where it was the run itself"),
)

VARIABLES = {variable.name: variable for variable in (*_SAMPLES, *_TIES, *FIELDS, *FACTS, *COSTS, *LOWERED, *_COMPUTED)}
"""All variables of the dataset by name."""

COORDINATES = {
    variable.name: variable
    for variable in (
        Variable("parameters", "1", "number of parameters"),
        Variable(
            "mult_adds",
            "1",
            "mult-adds of one sample as torchinfo counts them: a linear layer once, not once a token",
        ),
        Variable("macs", "1", "multiply-accumulate operations of one sample"),
        Variable("weight_bytes", "byte", "parameters and buffers"),
        Variable("input_bytes", "byte", "inputs of one sample"),
        Variable("output_bytes", "byte", "outputs of one sample"),
        Variable("baseline", "", "what identity means"),
        Variable("fixed_batch", "", "why no other batch size is valid, as the network was seen to behave"),
    )
}
"""The coordinates that describe a network."""

RESERVED = frozenset({*DIMS, *VARIABLES, *COORDINATES})
"""No factor may have these names: a factor is a dim of the dataset beside them."""

"""Records: the measurement or the failure of a trial, to and from plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal, get_args

from ngbkit import validation
from ngbkit.errors import JournalError
from ngbkit.sweep.memory import SYSTEM, Memory
from ngbkit.sweep.variable import variable
from ngbkit.validation import Count, Finite, Line, PositiveCount, Round, SchemaError, Seconds

FORMAT = 1

FailureStatus = Literal["failed", "timeout", "crashed", "out-of-memory", "not-equivalent", "unsupported"]
Status = Literal["ok", "not-checked", FailureStatus, "pending", "predicted"]
STATUSES: tuple[str, ...] = get_args(Status)
NOT_CHECKED = "not-checked"
"""The status of a measured trial whose outputs could not be compared: a wrong answer would not be noticed."""
MEASURED = ("ok", NOT_CHECKED)
"""The statuses of trials with samples."""
OPEN = ("pending", "predicted")
"""The statuses of trials without a measurement yet."""
INCONCLUSIVE = "inconclusive"
"""The name of the trials that are not conclusive, among the statuses that can be retried."""
RETRIABLE = (*(status for status in STATUSES if status not in OPEN), INCONCLUSIVE)
"""The statuses of trials that `ngbkit.runs.resume` can measure again."""
Stage = Literal["install", "export", "build", "compile", "check", "measure", "engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The contents of a timed call. Columns of different contracts must not be compared as if they were alike.

    Parameters
    ----------
    runtime
        What executes: ``"torch eager"``, ``"onnxruntime CPUExecutionProvider"``.
    precision
        The effective one, read from the runtime where it tells: ``"f32"``.
    threads
        Worker threads of the runtime.
    transfers
        Whether copying inputs to the chip and outputs back is timed; on a CPU there is nothing to copy.
    synchronised
        Whether a call waits until the outputs are ready.
    clock
        What a sample was timed by: ``"host"``, the CPU's clock around a call that waits for its outputs; or
        ``"events"``, CUDA events before and after the work on the GPU, which leave out the way there and back. Where
        the CPU launches kernels more slowly than they run, that pace is what events see too.
    flushed
        Whether the GPU's L2 cache was overwritten before each sample, so that weights came from its memory.
    overlap
        Requests in flight at once; above 1 a sample is the time of that many requests over their number.
    inputs
        How the inputs of a timed call differ from those of every earlier one: a few elements of each sample are
        ``"fresh"``, drawn again, or ``"nudged"``, numbers of the user's in their last digits; or all are ``"rotated"``
        among the rows that the user gave. They are the ``"same"`` where no other ones are known to be valid; and empty
        in a record of before 28 November 2026, whose timed calls were not checked.
    memory
        How the process gets memory (`ngbkit.sweep.memory`): ``"kept"``, ``"system"``. Before 29 November 2026 it was
        ``"system"``, of which blocks of up to 32 MB stayed with the process.
    notes
        Anything else that a reader must know: ``"untuned"``.
    """

    runtime: Line
    precision: Line = "f32"
    threads: Count = 1
    transfers: Literal["none", "included", "excluded"] = "none"
    synchronised: bool = True
    overlap: PositiveCount = 1
    clock: Literal["host", "events"] = "host"
    flushed: bool = False
    inputs: Literal["", "fresh", "nudged", "rotated", "same"] = ""
    memory: Memory = SYSTEM
    notes: Line = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A trial that was measured, with every sample kept; a field with a `variable` is documented by it.

    Parameters
    ----------
    trial_id
        The content hash of the trial.
    latency_s
        Seconds, one a sample, in the order in which they were taken: the time of an inference of the whole batch, or
        the mean of `calls_per_sample` of them in a row.
    rounds
        For each sample, the interleaving round that it is from.
    contract
        What was timed.
    rmse, baseline_rmse
        Root-mean-square error against the reference, over the reference's own root mean square: of this compiler's
        outputs, and of the baseline's. NaN where they could not be compared.
    unchecked
        Why the outputs could not be compared, in one line; empty where they were. It is the `error` of the trial, whose
        `status` is ``"not-checked"`` and not ``"ok"``.
    contended_samples
        The indices in `latency_s` of samples that were taken while other work had cores that this trial needed.
    facts
        What the compiler did, as plain JSON; what is worth keeping but has no variable of its own.
    profile
        The kernels that ran and their seconds, as plain JSON (`ngbkit.device.isolation.profiling.build_record`); empty
        without the sweep's option `profile`.
    started_at
        Seconds since the epoch.
    origin
        The id of the earlier run that it was taken over from; empty for a trial of the run itself.
    stopped
        Whether its run was stopped before it had all of its samples: a resumed run measures it again.
    """

    trial_id: Line
    latency_s: tuple[Seconds, ...]
    rounds: tuple[Round, ...]
    compile_time_s: Seconds = variable(
        "compile_time", "s", "conversion and compilation time with empty caches", default=MISSING
    )
    first_call_time_s: Seconds = variable(
        "first_call_time", "s", "time of the first call after compilation", default=MISSING
    )
    contract: Contract
    rmse: float
    baseline_rmse: float
    max_abs_error: float = variable(
        "max_abs_error", "1", "largest absolute error against the float64 reference", default=MISSING
    )
    unchecked: Line = ""
    compile_time_warm_s: Seconds | None = variable(
        "compile_time_warm",
        "s",
        "compilation time in a new process with what the first left in the compiler's cache",
        "NaN where the compiler keeps none",
    )
    calls_per_sample: PositiveCount = variable(
        "calls_per_sample", "1", "calls in a row that a sample is the mean of", "above 1 for short calls", default=1
    )
    contended_samples: tuple[Round, ...] = ()
    interleaved: bool = variable(
        "interleaved",
        "1",
        "whether the compilers of the group took turns",
        "0 where memory did not hold them all",
        default=True,
    )
    bundle: PositiveCount | None = variable(
        "bundle",
        "1",
        "number of the set of trials that took turns in the same rounds",
        "rounds of two networks are the same only where it is equal; NaN where none but the group took turns",
    )
    looks: Count = variable(
        "looks", "1", "how often the stopping rule looked at the interval", "0 with fixed repeats", default=0
    )
    foreign_percent: Finite | None = variable(
        "foreign_percent", "%", "CPU use of other processes while measuring", "of all cores"
    )
    steal_percent: Finite | None = variable(
        "steal_percent", "%", "time that the hypervisor gave others while measuring", "of that of all cores"
    )
    throttled_percent: Finite | None = variable(
        "throttled_percent", "%", "time in which a quota paused the container while measuring", "of that of all cores"
    )
    unusual_percent: Finite | None = variable(
        "unusual_percent",
        "%",
        "samples that were taken while the host ran the cores in another way than usual",
        "by its probes; NaN without",
    )
    core_trip_s: Finite | None = variable(
        "core_trip",
        "s",
        "round trip of a cache line between two cores while measuring",
        "of the slowest pair, a median",
    )
    core_work_s: Finite | None = variable(
        "core_work", "s", "time of fixed arithmetic while measuring", "on the slowest core, a median"
    )
    cpu_percent: Finite | None = variable("cpu_percent", "%", "CPU use of the machine while measuring", "of all cores")
    process_cpu_percent: Finite | None = variable(
        "process_cpu_percent", "%", "CPU use of the measuring process alone", "of all cores"
    )
    peak_memory_bytes: Count | None = variable("peak_memory", "byte", "peak resident memory of the measuring process")
    minor_faults: Finite | None = variable(
        "minor_faults", "1", "pages that the kernel gave to the process in a call", "a median of parts of turns"
    )
    major_faults: Finite | None = variable("major_faults", "1", "pages that were read from a disk in a call", "a mean")
    involuntary_switches: Finite | None = variable(
        "involuntary_switches", "1", "times that the kernel took a core from the process in a call", "a mean"
    )
    gpu_percent: Finite | None = variable(
        "gpu_percent", "%", "use of the accelerator while measuring", "NaN where there is none"
    )
    gpu_memory_bytes: Count | None = variable(
        "gpu_memory", "byte", "peak memory taken of the accelerator while measuring", "NaN where there is none"
    )
    energy_j: Finite | None = variable(
        "energy",
        "J",
        "energy that the accelerator takes for one call; on a CPU, all its packages with their memory",
        "NaN where it does not tell; that of packages includes idle power and other work",
    )
    stopped: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    profile: Mapping[str, Any] = field(default_factory=dict)
    started_at: Seconds = 0.0
    origin: Line = ""

    @property
    def status(self) -> Literal["ok", "not-checked"]:
        """Return whether the outputs were compared."""
        return "not-checked" if self.unchecked else "ok"

    @property
    def error(self) -> str:
        """Return why the outputs could not be compared, empty where they were."""
        return self.unchecked


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A trial that gave no measurement.

    Parameters
    ----------
    trial_id
        The content hash of the trial.
    status
        How it failed.
    stage
        Where it failed.
    error
        One line: type and message.
    detail
        The traceback, or the last lines of the child's log.
    facts
        What was learnt before it failed (``compile_time_s``, ``rmse``).
    started_at
        Seconds since the epoch.
    origin
        The id of the earlier run that it was taken over from; empty for a trial of the run itself.
    """

    trial_id: Line
    status: FailureStatus
    stage: Stage
    error: Line
    detail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    started_at: Seconds = 0.0
    origin: Line = ""


Record = Measurement | Failure


class NewerRecordError(JournalError):
    """A newer ngbkit wrote a record: it is not damaged, and this ngbkit leaves it alone."""


def is_stopped(record: Record) -> bool:
    """Return whether the run of a measured trial was stopped before it had all of its samples."""
    return isinstance(record, Measurement) and record.stopped


def to_json(record: Record) -> dict[str, Any]:
    """The record as plain JSON values, with the format's version."""
    # Not by `asdict`, which copies each sample: that was two thirds of a client's time.
    data = _to_dict(record)
    if isinstance(record, Measurement):
        data["contract"] = _to_dict(record.contract)
    return {"format": FORMAT, "kind": "measurement" if isinstance(record, Measurement) else "failure", **data}


def _to_dict(record: Record | Contract) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in _NAMES[type(record)]}
    return {name: value for name, value in values.items() if value or name != "profile"}


def from_json(data: Mapping[str, Any], *, samples: int | None = None) -> Record:
    """The record that `to_json` wrote; every field is checked, and its texts are cleaned (`ngbkit.validation`).

    Parameters
    ----------
    data
        Plain JSON from anywhere.
    samples
        The number of samples, if they are kept beside the record and `data` has none.

    Raises
    ------
    NewerRecordError
        A newer ngbkit wrote it.
    JournalError
        It is not a record.
    """
    values = dict(data)
    version, kind = values.pop("format", None), values.pop("kind", None)
    if type(version) is int and version > FORMAT:
        raise NewerRecordError(
            f"invalid record: got format {version!r}; expected at most {FORMAT}. Install a newer ngbkit."
        )
    if type(version) is not int or version < 1:
        raise JournalError(f"invalid record: got format {validation.describe(version)}; expected 1 to {FORMAT}.")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise JournalError(
            f"invalid record: got kind {validation.describe(kind)}; expected 'measurement' or 'failure'."
        )
    if "contract" in values:
        values["contract"] = _share_contract(values["contract"])
    if samples is not None and kind == "measurement":
        values |= {"latency_s": (), "rounds": ()}
    try:
        record: Record = validation.parse(_KINDS[kind], values)
        if isinstance(record, Measurement):
            _check_samples(record, len(record.latency_s) if samples is None else samples)
    except SchemaError as error:
        raise JournalError(f"invalid record of kind {kind!r}: {error}.") from error
    return record


def _share_contract(value: Any) -> Any:
    """Return the contract of an earlier record with the same values: a journal repeats a few many times."""
    try:
        return _parse_contract(tuple(value.items()), tuple(map(type, value.values())))
    except (AttributeError, TypeError, SchemaError):  # the record's own check explains it
        return value


@lru_cache(maxsize=256)
def _parse_contract(items: tuple[tuple[str, Any], ...], _types: tuple[type, ...]) -> Contract:  # 1 and True are equal
    parsed: Contract = validation.parse(Contract, dict(items))
    return parsed


def _check_samples(record: Measurement, count: int) -> None:
    """Check that the fields of a measurement fit its number of samples."""
    if not count:
        raise SchemaError("latency_s: it has no sample; expected at least one")
    if record.latency_s and len(record.rounds) != count:
        raise SchemaError(f"rounds: got {len(record.rounds)} for {count} samples; expected one round a sample")
    if any(index >= count for index in record.contended_samples):
        raise SchemaError(f"contended_samples: got {max(record.contended_samples)}; expected indices below {count}")


_KINDS = {"measurement": Measurement, "failure": Failure}
_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (Measurement, Failure, Contract)}

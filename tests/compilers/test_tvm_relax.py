"""The parts of tuning with TVM, each tested without TVM."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import TEST_S, limit_s
from tvm_child import write_network

from ngbkit.compilers.base import Tuning
from ngbkit.compilers.tvm_relax import candidate_records, measuring
from ngbkit.compilers.tvm_relax.allocation import FunctionHistory, choose
from ngbkit.compilers.tvm_relax.candidate_records import Record
from ngbkit.compilers.tvm_relax.forked import ForkedProcess, ProcessEnded
from ngbkit.compilers.tvm_relax.measuring import CandidateBench
from ngbkit.compilers.tvm_relax.onnx_network import OnnxNetwork
from ngbkit.compilers.tvm_relax.tuned import Tuner
from ngbkit.compilers.tvm_relax.tuning_store import Subject, TuningStore


def crash(channel: Connection) -> None:
    del channel
    faulthandler.disable()  # an intended crash needs no traceback
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(channel: Connection) -> None:
    del channel
    time.sleep(600)


def fail(channel: Connection) -> None:
    raise ValueError("no such schedule")


@pytest.mark.parametrize(
    ("work", "seconds", "message"),
    [(crash, TEST_S, "killed by SIGSEGV"), (hang, 0.5, "timed out and was killed")],
)
def test_a_forked_process_may_end_any_way(work: Callable[[Connection], Any], seconds: float, message: str) -> None:
    """A crash and a hang are reported as such."""
    process = ForkedProcess(work)

    with pytest.raises(ProcessEnded, match=message):
        process.receive(time.monotonic() + seconds)
    process.close()


def test_a_forked_process_tells_its_errors_and_its_result() -> None:
    """A process sends its messages, and then its return value or its exception."""
    failing, echoing = ForkedProcess(fail), ForkedProcess(lambda channel: [channel.recv(), "done"])
    echoing.send({"word": 1})
    deadline = time.monotonic() + limit_s()

    assert failing.receive(deadline) == {"error": "ValueError: no such schedule"}
    assert echoing.receive(deadline) == [{"word": 1}, "done"]
    for process in (failing, echoing):
        process.close()


class Device:
    """A device that is always ready."""

    def sync(self) -> None:
        """Return at once."""


def build(module: str, target: Any) -> Callable[..., Any]:
    del target
    if module == "crashes":
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGILL)
    if module == "never ends":
        time.sleep(600)
    if module == "is wrong":
        raise ValueError("no such loop")
    return lambda: time.sleep(600) if module == "hangs" else os.kill(os.getpid(), 9) if module == "dies" else None


def test_a_bad_candidate_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that fails while it is built or run does not affect those beside it."""
    monkeypatch.setattr(measuring, "_build", build)
    monkeypatch.setattr(measuring, "BUILD_S", limit_s(1.5))
    monkeypatch.setattr(measuring, "RUN_S", limit_s(1.5))
    names = ["good", "crashes", "never ends", "is wrong", "hangs", "dies", "good"]
    candidates = [SimpleNamespace(sch=SimpleNamespace(mod=name), args_info=[]) for name in names]
    ticks: list[float] = []
    bench = CandidateBench(target=None, device=Device, workers=2, tick=lambda: ticks.append(time.monotonic()))
    timings = bench.measure(candidates, None, time.monotonic() + TEST_S)

    assert [timing and timing.error for timing in timings] == [
        "",
        "killed by SIGILL",
        "timed out and was killed",
        "ValueError: no such loop",
        "timed out and was killed",
        "killed by SIGKILL",
        "",
    ]
    assert [timing is not None and timing.seconds is not None for timing in timings] == [True, *[False] * 5, True]
    assert len(ticks) >= len(names)


def test_no_candidate_is_started_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the deadline no candidate starts, and those not tried have no timing."""
    monkeypatch.setattr(measuring, "_build", build)
    candidates = [SimpleNamespace(sch=SimpleNamespace(mod="good"), args_info=[])] * 3
    bench = CandidateBench(target=None, device=Device, workers=2, tick=lambda: None)

    assert bench.measure(candidates, None, time.monotonic()) == [None] * 3


def build_history(work: float = 1.0, weight: float = 1.0, seconds: tuple[float | None, ...] = ()) -> FunctionHistory:
    history = FunctionHistory(weight=weight, work=work)
    for value in seconds:
        history.add(value)
        history.close_round()
    return history


def test_each_function_has_its_first_turn_by_its_work() -> None:
    """Each function is tried once first, the heaviest per call of the network first."""
    history = build_history(work=100, seconds=(1.0,))

    assert choose([history, build_history(work=2), build_history(work=1, weight=3)]) == 2


@pytest.mark.parametrize(
    "histories",
    [
        [build_history(seconds=(1.0, 1.0)), build_history(seconds=(2.0, 2.0))],
        [build_history(seconds=(1.0, 1.0)), build_history(weight=2, seconds=(1.0, 1.0))],
        [build_history(seconds=(1.0,) * 9), build_history(seconds=(1.0,) * 3)],
        [build_history(seconds=(1.0, 1.0, 1.0)), build_history(seconds=(3.0, 2.0, 1.0))],
        [build_history(seconds=(1.0, 1.0)), build_history(seconds=(None,))],
    ],
    ids=["slower", "called more often", "tried less often", "still getting better", "nothing works yet"],
)
def test_the_next_candidates_go_where_they_may_save_most(histories: list[FunctionHistory]) -> None:
    """The second of the two has more to gain than the first."""
    assert choose(histories) == 1


def test_a_function_settles() -> None:
    """A number of candidates without improvement settles it, failed ones included; without a limit it never settles."""
    history = build_history(seconds=(2.0, 1.0, 1.5, None))

    assert history.has_converged(2)
    assert not history.has_converged(3)
    assert not history.has_converged(0)


def build_record(candidate: str, spent_s: float = 1.0) -> Record:
    return Record(function="f", candidate=candidate, seconds=1e-3, error="", schedule=[["Split", [1]]], spent_s=spent_s)


def test_records_survive_a_kill_at_any_byte(tmp_path: Path) -> None:
    """Complete lines are read, an incomplete one is truncated, and later lines are read as well."""
    path = tmp_path / "records.jsonl"
    candidate_records.append(path, [build_record("a"), build_record("b")])
    content = path.read_bytes()
    first = len(content.splitlines(keepends=True)[0])
    for cut in range(first, len(content)):
        path.write_bytes(content[:cut])

        assert candidate_records.read(path) == [build_record("a")]
    candidate_records.truncate_partial(path)
    candidate_records.append(path, [build_record("c")])

    assert candidate_records.read(path) == [build_record("a"), build_record("c")]


def build_subject(**budget: float) -> Subject:
    limits = {"trials": 0, "early_stop": 0, "total": 0, "seconds": 0.0, **budget}
    return Subject(network="n", batch_size=1, target="t", versions={"apache-tvm": "1"}, budget=limits)


def save_records(store: TuningStore, candidates: int) -> None:
    with store.lock(lambda: None):
        candidate_records.append(store.records, [build_record(str(index)) for index in range(candidates)])
        store.write_meta({"candidates": candidates})


def test_only_a_smaller_budget_is_taken_over(tmp_path: Path) -> None:
    """A search starts from the largest budget within its own limits; a larger one would hide its cost."""
    for budget, candidates in (({"total": 10}, 10), ({"total": 20}, 20), ({"trials": 5, "total": 15}, 12)):
        save_records(TuningStore(tmp_path, build_subject(**budget)), candidates)

    def find_smaller(**budget: float) -> dict[str, Any]:
        path = TuningStore(tmp_path, build_subject(**budget)).find_smaller_records()
        options: dict[str, Any] = {}
        return json.loads((path.with_name("meta.json")).read_text())["options"] if path else options

    assert find_smaller(total=5) == find_smaller(total=10) == {}
    assert find_smaller(total=16)["total"] == 15
    assert find_smaller(total=30)["total"] == 20
    assert find_smaller(trials=5)["trials"] == 5
    assert TuningStore(tmp_path, replace(build_subject(total=30), network="another")).find_smaller_records() is None


def test_one_process_holds_a_folder(tmp_path: Path) -> None:
    """A second process waits, and reports it, until the first has ended, even if it was killed."""
    store = TuningStore(tmp_path, build_subject(total=1))

    def hold(channel: Connection) -> None:
        with store.lock(lambda: None):
            channel.send("lock")
            channel.recv()

    holder = ForkedProcess(hold)
    assert holder.receive(time.monotonic() + limit_s()) == "lock"
    waits: list[int] = []

    def count_wait() -> None:
        waits.append(1)
        holder.close()

    with store.lock(count_wait):
        assert len(waits) >= 1


def test_what_an_exporter_notes_is_no_part_of_a_network(tmp_path: Path) -> None:
    """An exporter's paths and tool names do not change the hash of a network; a weight does."""
    import onnx

    onnx_file = tmp_path / "plain.onnx"
    write_network(onnx_file)
    annotated, modified = onnx.load(onnx_file), onnx.load(onnx_file)
    annotated.producer_name = "another"
    annotated.graph.doc_string = "made somewhere"
    entry = annotated.graph.node[0].metadata_props.add()
    entry.key, entry.value = "stack_trace", "/home/somebody/model.py"
    modified.graph.initializer[0].raw_data = bytes(len(modified.graph.initializer[0].raw_data))
    digests = []
    for index, model in enumerate((annotated, modified)):
        onnx.save(model, tmp_path / f"{index}.onnx")
        digests.append(OnnxNetwork.read(tmp_path / f"{index}.onnx").digest())
    plain = OnnxNetwork.read(onnx_file).digest()

    assert digests[0] == plain
    assert digests[1] != plain


def test_a_hopeless_candidate_is_timed_once() -> None:
    """A candidate many times slower than the best is called only until that is known."""
    calls: list[int] = []

    def slow() -> None:
        calls.append(1)
        time.sleep(0.01)

    def count_calls(best_s: float | None) -> int:
        calls.clear()
        measuring._time_call(slow, [], Device(), best_s)
        return len(calls)

    assert count_calls(1e-6) < count_calls(None)


def build_tuner(tmp_path: Path, work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Tuner:
    """Build a tuner whose search is `work`, which is called with the skipped functions and the channel."""
    store = TuningStore(tmp_path, build_subject(total=1))
    store.folder.mkdir(parents=True)
    monkeypatch.setattr(Tuner, "_run_search", lambda self, module, limits, skipped, channel: work(skipped, channel))
    unused: Any = None
    return Tuner(
        network=unused,
        target=unused,
        accelerator="cpu",
        threads=1,
        store=store,
        folder=tmp_path,
        tuning=Tuning(folder=tmp_path),
    )


def test_a_search_that_crashes_goes_on_without_what_it_crashed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two crashes in a function the search continues without it."""

    def work(skipped: set[str], channel: Connection) -> dict[str, Any]:
        channel.send({"function": "bad"})
        if "bad" not in skipped:
            crash(channel)
        return {"cut_short": skipped != {"bad"}}

    assert build_tuner(tmp_path, work, monkeypatch)._search(None) is False


def test_a_search_that_cannot_begin_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes before the first function fail after a few restarts, and an error fails at once."""

    def fails(skipped: set[str], channel: Connection) -> None:
        fail(channel)

    with pytest.raises(RuntimeError, match="crashed before its first function: killed by SIGSEGV"):
        build_tuner(tmp_path / "1", lambda skipped, channel: crash(channel), monkeypatch)._search(None)
    with pytest.raises(RuntimeError, match="tuning failed: ValueError: no such schedule"):
        build_tuner(tmp_path / "2", fails, monkeypatch)._search(None)

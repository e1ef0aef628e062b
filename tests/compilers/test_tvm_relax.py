"""The parts that tuning with TVM is made of, each without TVM."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import TEST_S, limit_s
from tvm_child import write_network

from ngbkit.compilers.base import Tuning
from ngbkit.compilers.tvm_relax import measuring, records
from ngbkit.compilers.tvm_relax.allocation import Standing, choose
from ngbkit.compilers.tvm_relax.forked import Ended, Forked, Line
from ngbkit.compilers.tvm_relax.measuring import Bench
from ngbkit.compilers.tvm_relax.network import Network
from ngbkit.compilers.tvm_relax.records import Record
from ngbkit.compilers.tvm_relax.store import Store, Subject
from ngbkit.compilers.tvm_relax.tuned import Workshop


def crash(line: Line) -> None:
    del line
    faulthandler.disable()  # it is meant to, and nobody needs to see where
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(line: Line) -> None:
    del line
    time.sleep(600)


def fail(line: Line) -> None:
    raise ValueError("no such schedule")


@pytest.mark.parametrize(
    ("work", "seconds", "words"),
    [(crash, TEST_S, "it was ended by SIGSEGV"), (hang, 0.5, "it took too long and was killed")],
)
def test_a_forked_process_may_end_any_way(work: Callable[[Line], Any], seconds: float, words: str) -> None:
    """A crash and a hang are told as what they are."""
    process = Forked(work)

    with pytest.raises(Ended, match=words):
        process.hear(time.monotonic() + seconds)
    process.close()


def test_a_forked_process_tells_its_errors_and_its_result() -> None:
    """An exception comes as its message, and a return value as itself, after what was said before it."""
    failing, echoing = Forked(fail), Forked(lambda line: [line.hear(), "done"])
    echoing.tell({"word": 1})
    until = time.monotonic() + limit_s()

    assert failing.hear(until) == {"error": "ValueError: no such schedule"}
    assert echoing.hear(until) == [{"word": 1}, "done"]
    for process in (failing, echoing):
        process.close()


class Device:
    """A device that is always ready, and whose tensors are of no account."""

    def sync(self) -> None:
        """It is."""


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
    """Whatever a candidate does while it is built or run, those beside it are timed."""
    monkeypatch.setattr(measuring, "_build", build)
    monkeypatch.setattr(measuring, "BUILD_S", limit_s(1.5))
    monkeypatch.setattr(measuring, "RUN_S", limit_s(1.5))
    names = ["good", "crashes", "never ends", "is wrong", "hangs", "dies", "good"]
    candidates = [SimpleNamespace(sch=SimpleNamespace(mod=name), args_info=[]) for name in names]
    ticks: list[float] = []
    bench = Bench(target=None, device=Device, workers=2, tick=lambda: ticks.append(time.monotonic()))
    found = bench.measure(candidates, None, time.monotonic() + TEST_S)

    assert [timing and timing.error for timing in found] == [
        "",
        "it was ended by SIGILL",
        "it took too long and was killed",
        "ValueError: no such loop",
        "it took too long and was killed",
        "it was ended by SIGKILL",
        "",
    ]
    assert [timing is not None and timing.seconds is not None for timing in found] == [True, *[False] * 5, True]
    assert len(ticks) >= len(names)


def test_no_candidate_is_started_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget that is spent is not spent further; what was not tried has no timing."""
    monkeypatch.setattr(measuring, "_build", build)
    candidates = [SimpleNamespace(sch=SimpleNamespace(mod="good"), args_info=[])] * 3
    bench = Bench(target=None, device=Device, workers=2, tick=lambda: None)

    assert bench.measure(candidates, None, time.monotonic()) == [None] * 3


def standing(work: float = 1.0, weight: float = 1.0, seconds: tuple[float | None, ...] = ()) -> Standing:
    made = Standing(weight=weight, work=work)
    for one in seconds:
        made.add(one)
        made.close_round()
    return made


def test_each_function_has_its_first_turn_by_its_work() -> None:
    """First all in turn, heavy ones before light ones, where a call makes more of its weight."""
    tried_once = standing(work=100, seconds=(1.0,))

    assert choose([tried_once, standing(work=2), standing(work=1, weight=3)]) == 2


@pytest.mark.parametrize(
    "standings",
    [
        [standing(seconds=(1.0, 1.0)), standing(seconds=(2.0, 2.0))],
        [standing(seconds=(1.0, 1.0)), standing(weight=2, seconds=(1.0, 1.0))],
        [standing(seconds=(1.0,) * 9), standing(seconds=(1.0,) * 3)],
        [standing(seconds=(1.0, 1.0, 1.0)), standing(seconds=(3.0, 2.0, 1.0))],
        [standing(seconds=(1.0, 1.0)), standing(seconds=(None,))],
    ],
    ids=["slower", "called more often", "tried less often", "still getting better", "nothing works yet"],
)
def test_the_next_candidates_go_where_they_may_save_most(standings: list[Standing]) -> None:
    """The second of the two has more to gain than the first."""
    assert choose(standings) == 1


def test_a_function_settles() -> None:
    """So many candidates in a row that are no better end it, failed ones among them; without a limit none do."""
    one = standing(seconds=(2.0, 1.0, 1.5, None))

    assert one.has_settled(2)
    assert not one.has_settled(3)
    assert not one.has_settled(0)


def record(candidate: str, spent_s: float = 1.0) -> Record:
    return Record(function="f", candidate=candidate, seconds=1e-3, error="", schedule=[["Split", [1]]], spent_s=spent_s)


def test_records_survive_a_kill_at_any_byte(tmp_path: Path) -> None:
    """What was whole is read, what was not is cut off, and what is added then is read as well."""
    path = tmp_path / "records.jsonl"
    records.append(path, [record("a"), record("b")])
    whole = path.read_bytes()
    first = len(whole.splitlines(keepends=True)[0])
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])

        assert records.read(path) == [record("a")]
    records.mend(path)
    records.append(path, [record("c")])

    assert records.read(path) == [record("a"), record("c")]


def subject(**budget: float) -> Subject:
    limits = {"trials": 0, "early_stop": 0, "total": 0, "seconds": 0.0, **budget}
    return Subject(network="n", batch_size=1, target="t", versions={"apache-tvm": "1"}, budget=limits)


def keep(store: Store, candidates: int) -> None:
    with store.held(lambda: None):
        records.append(store.records, [record(str(index)) for index in range(candidates)])
        store.note({"candidates": candidates})


def test_only_a_smaller_budget_is_taken_over(tmp_path: Path) -> None:
    """Of those within every limit of this one, the furthest; a larger one would give away what it cost."""
    for budget, candidates in (({"total": 10}, 10), ({"total": 20}, 20), ({"trials": 5, "total": 15}, 12)):
        keep(Store(tmp_path, subject(**budget)), candidates)

    def smaller(**budget: float) -> dict[str, Any]:
        found = Store(tmp_path, subject(**budget)).smaller()
        options: dict[str, Any] = {}
        return json.loads((found.with_name("meta.json")).read_text())["options"] if found else options

    assert smaller(total=5) == smaller(total=10) == {}
    assert smaller(total=16)["total"] == 15
    assert smaller(total=30)["total"] == 20
    assert smaller(trials=5)["trials"] == 5
    assert Store(tmp_path, replace(subject(total=30), network="another")).smaller() is None


def test_one_process_holds_a_folder(tmp_path: Path) -> None:
    """A second one waits, and says so, until the first has ended, also when that was killed."""
    store = Store(tmp_path, subject(total=1))

    def hold(line: Line) -> None:
        with store.held(lambda: None):
            line.tell("held")
            line.hear()

    holder = Forked(hold)
    assert holder.hear(time.monotonic() + limit_s()) == "held"
    waits: list[int] = []

    def waiting() -> None:
        waits.append(1)
        holder.close()

    with store.held(waiting):
        assert len(waits) >= 1


def test_what_an_exporter_notes_is_no_part_of_a_network(tmp_path: Path) -> None:
    """Paths and names of tools do not change the hash by which tuning is found again; a weight does."""
    import onnx

    onnx_file = tmp_path / "plain.onnx"
    write_network(onnx_file)
    noted, changed = onnx.load(onnx_file), onnx.load(onnx_file)
    noted.producer_name = "another"
    noted.graph.doc_string = "made somewhere"
    entry = noted.graph.node[0].metadata_props.add()
    entry.key, entry.value = "stack_trace", "/home/somebody/model.py"
    changed.graph.initializer[0].raw_data = bytes(len(changed.graph.initializer[0].raw_data))
    digests = []
    for index, model in enumerate((noted, changed)):
        onnx.save(model, tmp_path / f"{index}.onnx")
        digests.append(Network.read(tmp_path / f"{index}.onnx").digest())
    plain = Network.read(onnx_file).digest()

    assert digests[0] == plain
    assert digests[1] != plain


def test_a_hopeless_candidate_is_timed_once() -> None:
    """One that is many times slower than the best is called no more often than it takes to see that."""
    calls: list[int] = []

    def slow() -> None:
        calls.append(1)
        time.sleep(0.01)

    def timed(best: float | None) -> int:
        calls.clear()
        measuring._time(slow, [], Device(), best)
        return len(calls)

    assert timed(1e-6) < timed(None)


def workshop(tmp_path: Path, work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """One whose search is that piece of work: it is given the functions that are given up, and the line."""
    store = Store(tmp_path, subject(total=1))
    store.folder.mkdir(parents=True)
    monkeypatch.setattr(Workshop, "_work", lambda self, module, limits, given_up, line: work(given_up, line))
    unused: Any = None
    return Workshop(
        network=unused,
        target=unused,
        accelerator="cpu",
        threads=1,
        store=store,
        tuning=Tuning(folder=tmp_path),
    )


def test_a_search_that_crashes_goes_on_without_what_it_crashed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function at which the search has crashed twice is left out of the third."""

    def work(given_up: set[str], line: Line) -> dict[str, Any]:
        line.tell({"at": "bad"})
        if "bad" not in given_up:
            crash(line)
        return {"cut_short": given_up != {"bad"}}

    assert workshop(tmp_path, work, monkeypatch)._search(None) is False


def test_a_search_that_cannot_begin_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash before the first function is told after a few, and an error at once."""

    def fails(given_up: set[str], line: Line) -> None:
        fail(line)

    with pytest.raises(RuntimeError, match="crashed before it had begun: it was ended by SIGSEGV"):
        workshop(tmp_path / "1", lambda given_up, line: crash(line), monkeypatch)._search(None)
    with pytest.raises(RuntimeError, match="tuning failed: ValueError: no such schedule"):
        workshop(tmp_path / "2", fails, monkeypatch)._search(None)

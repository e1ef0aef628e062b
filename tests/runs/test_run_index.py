"""The index of runs: it is faster than reading them, and says the same."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journalled import store_run

from ngbkit import cli, runs
from ngbkit.api import Sweep
from ngbkit.commands import runs as commands
from ngbkit.commands.completion import LISTERS, Cursor
from ngbkit.commands.runs import list_runs
from ngbkit.errors import FencedError, RunNotFoundError, UsageError
from ngbkit.files import Store
from ngbkit.runs import run_index
from ngbkit.runs.deletion import delete
from ngbkit.runs.run_context import RunContext, check_note
from ngbkit.runs.summary import Summary, list_changes, summarize
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads.base import Workload

CELL = "%%ngbench -c identity\nimport torch\nclass Block(torch.nn.Module):\n    width = 64\nmodel = Block()\n"


def build_sweep(name: str = "net", **keywords: Any) -> Sweep:
    workload = Workload(name=name, source="timm", spec={"name": name}, **keywords.pop("workload", {}))
    return Sweep([workload], **{"compilers": ["identity"], "repeats": 5, **keywords})


def make_run(run_id: str, sweep: Sweep | None = None, created: float = 1e9, cell: str = "") -> Path:
    """Store a run that is older than the resolution of file times."""
    folder = store_run(run_id, sweep or build_sweep(), created=created)
    RunContext(notebook="/home/u/blocks.ipynb", cell=cell).save(folder)
    return age(folder)


def age(folder: Path, seconds: float = 1e9) -> Path:
    for path in folder.iterdir():
        os.utime(path, (seconds, seconds))
    return folder


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "summarize", lambda folder: pytest.fail(f"it read {folder}"))
    monkeypatch.setattr(run_index, "load_metadata", lambda folder: pytest.fail(f"it read {folder}"))


def test_an_unchanged_run_is_not_read_again(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second listing takes all summaries from the index, which its owner alone can read."""
    for number in range(3):
        make_run(f"run{number}", created=number)
    first = list(runs.summaries())
    forbid_reading(monkeypatch)

    assert ["run2", "run1", "run0"] == [summary.id for summary in first]
    assert first == list(runs.summaries())
    assert 0o600 == stat.S_IMODE((state_dir / "runs" / "index.sqlite").stat().st_mode)


def test_a_changed_run_is_read_again() -> None:
    """A further record, a note and a deleted folder change the list."""
    folders = [make_run(name, build_sweep(batch_sizes=[1, 2])) for name in ("a", "b", "c")]
    before = list(runs.summaries())
    with Journal(folders[0] / "journal.sqlite") as journal:
        journal.forget([build_sweep().trials()[0].id])
    assert cli.OK == cli.main(["runs", "--note", "b", "wider", "blocks"])
    assert cli.OK == cli.main(["runs", "--delete", "c"])
    after = {summary.id: summary for summary in runs.summaries()}

    assert [{"ok": 2}] * 3 == [summary.statuses for summary in before]
    assert {"a", "b"} == {*after}
    assert {"ok": 1, "pending": 1} == after["a"].statuses
    assert "wider blocks" == after["b"].context.note


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"trials": 1', b'"trials": 7'))


def make_foreign(path: Path) -> None:
    path.write_bytes(b"no database")


def make_unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [damage, make_foreign, make_unreadable])
def test_a_damaged_index_changes_no_list(state_dir: Path, change: Any) -> None:
    """A damaged row is not used, and a file that is no index is replaced or left."""
    for name in ("a", "b"):
        make_run(name)
    before = list(runs.summaries())
    change(state_dir / "runs" / "index.sqlite")

    assert before == list(runs.summaries())
    assert before == list(runs.summaries())


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_run_says_how_it_ended(state: str) -> None:
    """A state that the journal notes is the state of the run."""
    folder = make_run("a")
    with Journal(folder / "journal.sqlite") as journal:
        journal.note("ending", "run", {"state": state, "error": "no room" if state == "failed" else ""})

    assert [(state, "no room" if state == "failed" else "")] == [(row["state"], row["error"]) for row in list_runs()]


def test_a_run_whose_process_ended_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    """A run without an end is running as long as a process holds its journal; then its list says how to resume it."""
    folder = make_run("a", build_sweep(batch_sizes=[1, 2]))
    with Journal(folder / "journal.sqlite") as journal:
        journal.forget([build_sweep().trials()[0].id])
        journal.note("ending", "run", {"state": "running", "error": ""})
        states = [summary.state for summary in runs.summaries()]
        with pytest.raises(FencedError, match="run a is measured now"):
            delete(["a"])
    states += [summary.state for summary in runs.summaries()]

    assert ["running", "interrupted"] == states
    capsys.readouterr()
    assert cli.OK == cli.main(["runs"])
    assert ": 1 of 2 trials are missing" in (output := capsys.readouterr().out)
    assert "`ngbkit runs --resume a` measures the rest." in output


def summarise_pair(before: Sweep, after: Sweep, cell: str) -> tuple[Summary, Summary]:
    return summarize(make_run("a", before, cell=CELL)), summarize(make_run("b", after, cell=cell))


def test_the_changes_of_a_run_are_few_words() -> None:
    """A changed network, compiler, batch size, factor and option are listed, and nothing else."""
    before = build_sweep(workload={"takes": ("width",)}, factors={"width": [64]})
    workload = replace(before.workloads[0], spec={"name": "other"}, factors={})
    after = Sweep(
        [workload],
        ["identity", "openvino"],
        [1, 4],
        factors={"width": [64, 96]},
        repeats=9,
        together=True,
    )
    pair = summarise_pair(before, after, CELL.replace("64", "96\n    depth = 2"))

    changes = ["net: 2 lines", "+ openvino", "batch 1 → 1,4", "width 64 → 64,96", "repeats 5 → 9", "+ together"]

    assert changes == list_changes(*pair)
    assert [] == list_changes(pair[0], pair[0])
    assert "blocks.ipynb: class Block(torch.nn.Module):" == pair[0].context.place


def test_the_list_tells_iterations_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has the latest runs with their changes, and the number of the others."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(commands, "_LISTED", 2)
    for number in range(4):
        make_run(f"run{number}", build_sweep(batch_sizes=[1, 2 ** (number + 1)]), created=number, cell=CELL)
    assert cli.OK == cli.main(["runs"])
    table = capsys.readouterr().out
    rows = {line.split()[0]: line for line in table.splitlines() if line.startswith("run")}

    assert ["run", "run3", "run2"] == list(rows)
    assert "batch 1,8 → 1,16" in rows["run3"]
    assert "blocks.ipynb: class" in rows["run3"]
    assert "2 earlier runs are not listed: `ngbkit runs --all`" in table
    assert 4 == len(list_runs())


def test_tab_reads_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tab lists the latest runs first, with what the index says of each."""
    for name in ("20300101-a", "20300102-b"):
        make_run(name, cell=CELL)
    list(runs.summaries())
    make_run("20300103-c")
    forbid_reading(monkeypatch)
    values = LISTERS["result"](Cursor(typed="2030", words=[]))

    assert ["20300103-c", "20300102-b", "20300101-a"] == list(values)
    assert "" == values["20300103-c"]
    assert values["20300101-a"].startswith("blocks.ipynb: class Block(torch.nn.Module):, ")


def test_deleting_keeps_the_files_of_other_runs(state_dir: Path, tmp_path: Path) -> None:
    """A deleted run takes along the artifacts that no other run has, and its journal on the device."""
    store, digests = Store(state_dir / "artifacts"), []
    for name in ("shared", "own"):
        (tmp_path / name).write_text(name)
        digests.append(store.add(tmp_path / name))
    make_run("a", build_sweep(workload={"artifacts": dict.fromkeys(digests, tmp_path)}))
    make_run("b", build_sweep(workload={"artifacts": {digests[0]: tmp_path}}))
    journal = state_dir / "devices" / "cpu" / "a.sqlite"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(bytes(100))
    graph = store.root / f"{digests[1]}-0.onnx"
    graph.write_bytes(bytes(5000))
    deletion = delete(["a"])

    assert (("a",), (digests[1],)) == (deletion.runs, deletion.artifacts)
    assert not graph.exists()
    assert ["b"] == [summary.id for summary in runs.summaries()]
    assert [True, False] == [store.contains(digest) for digest in digests]
    assert not journal.exists()
    with pytest.raises(RunNotFoundError):
        delete(["b", "a"])
    assert (state_dir / "runs" / "b" / "run.json").exists()


def test_a_note_is_one_line() -> None:
    """A note has no line breaks, and is not longer than a line of a table."""
    assert "two lines" == check_note(" two\nlines ")
    with pytest.raises(UsageError, match="invalid note: got 300 characters; expected at most 200"):
        check_note("x" * 300)


def test_a_changed_helper_is_a_change(state_dir: Path) -> None:
    """A cell of the same text that imports another module than before is listed as changed."""
    before, after = summarise_pair(build_sweep(), build_sweep(), CELL)
    for name in ("a", "b"):
        with Journal(state_dir / "runs" / name / "journal.sqlite") as journal:
            journal.note("content", facts_key("net", {}), {"cpu": {"digest": f"content of {name}", "settings": ""}})
    changed = list_changes(*(summarize(state_dir / "runs" / name) for name in ("a", "b")))

    assert ["net: a module that it imports"] == changed
    assert [] == list_changes(before, after)

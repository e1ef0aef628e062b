"""What there is: devices, compilers and runs, as rows and as tables."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import TEST_S, limit_s

from ngbkit import registry, requirements
from ngbkit.api import Sweep
from ngbkit.commands.compilers import describe_compilers, list_compilers, summarize_compilers
from ngbkit.commands.devices import list_devices
from ngbkit.commands.runs import describe_failures, list_failures, list_runs
from ngbkit.compilers.base import Compiler, Option, always
from ngbkit.errors import RunNotFoundError, UnknownNameError
from ngbkit.hardware import environment
from ngbkit.registry import find_version
from ngbkit.runs.folders import build_metadata
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure
from ngbkit.tabular import Texts


def test_devices_say_what_they_are() -> None:
    """The row of this machine has its chip and its usable cores."""
    (device,) = list_devices()

    assert ("cpu", environment.count_usable_cores()) == (device["device"], device["cores"])
    assert device["chip"]


def absent(name: str = "absent", **fields: Any) -> Compiler:
    defaults: dict[str, Any] = {
        "summary": "not here",
        "forms": {"onnx": ()},
        "packages": ("no-such-package", "numpy"),
        "install": "pip install no-such-package",
        "compile": lambda task: pytest.fail("it is only listed"),
        "options": {
            "level": Option(default=3, help="how much", choices=(1, 3)),
            "fast": Option(default=True, help="?"),
        },
    }
    return Compiler(name=name, **{**defaults, **fields})


def offer(monkeypatch: pytest.MonkeyPatch, *compilers: Compiler) -> None:
    """Have these compilers and no others."""
    registered = {compiler.name: compiler for compiler in compilers}
    load_all = registry.load_all
    monkeypatch.setattr(
        registry, "load_all", lambda group, names=None: registered if group == registry.COMPILERS else load_all(group)
    )
    monkeypatch.setattr(registry, "load", lambda group, name: registered[name])


def test_compilers_say_what_is_missing_and_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a compiler has its missing package, the remedy, the versions and the options."""
    offer(monkeypatch, absent())
    (row,) = list_compilers()

    assert ("absent", False, {"no-such-package": None, "numpy": np.__version__}) == tuple(
        row[name] for name in ("compiler", "available", "packages")
    )
    assert {"default": 3, "choices": [1, 3], "help": "how much"} == row["options"]["level"]
    assert "pip install no-such-package" in row["missing"]
    assert row == json.loads(json.dumps(row))


def test_a_compiler_that_works_on_one_accelerator_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that works on one accelerator is available, and its row lists the others."""
    probes = {"cpu": always, "cuda": lambda: "there is no driver"}
    offer(monkeypatch, absent(packages=("numpy",), accelerators=probes))
    (row,) = list_compilers()
    (line,) = summarize_compilers([row])

    assert (True, "", {"cpu": "", "cuda": "there is no driver"}) == (
        row["available"],
        row["missing"],
        row["accelerators"],
    )
    assert "cpu, not cuda" == line["measures on"]


def test_a_compiler_says_which_networks_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are compiled without torch's exporter, and modules are not, with the line that mends it."""
    versions = {"onnxscript": None}
    monkeypatch.setattr(requirements, "find_version", lambda name: versions.get(name, find_version(name)))
    offer(monkeypatch, absent(packages=("numpy",)))
    (row,) = list_compilers()
    (line,), (sheet,) = summarize_compilers([row]), describe_compilers([row])

    assert (True, ["", ""]) == (row["available"], [row["networks"][kind] for kind in ("file", "program")])
    assert row["networks"]["module"].startswith("onnxscript not installed; install with: pip install 'onnxscript>=")
    assert "works for ONNX files, exported modules; not for modules" in sheet["on cpu"]
    assert line["is"].endswith(sheet["on cpu"])


def test_the_packages_of_a_named_compiler_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is installed and cannot be imported is no compiler that works."""
    offer(monkeypatch, absent(packages=("numpy",), forms={"module": ("ngbtest_absent",)}))
    (listed,), (imported,) = list_compilers(), list_compilers(["absent"])

    assert (True, False) == (listed["available"], imported["available"])
    assert "ModuleNotFoundError: No module named 'ngbtest_absent'" == imported["missing"]


def test_probes_are_asked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits here for the other to have begun; one after the other they would never end."""
    together = threading.Barrier(4, timeout=limit_s(TEST_S / 2))  # each imports packages first

    def probe() -> str:
        together.wait()
        return ""

    two = [absent(name, packages=("numpy",), accelerators={"cpu": probe, "cuda": probe}) for name in ("one", "two")]
    offer(monkeypatch, *two)

    assert [True, True] == [row["available"] for row in list_compilers()]


def test_a_probe_that_raises_is_told_and_hides_no_other_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's plugin may do anything."""

    def probe() -> str:
        raise OSError("no such library")

    offer(monkeypatch, absent("bad", packages=("numpy",), accelerators={"cpu": probe}), absent("good", packages=()))
    bad, good = list_compilers()

    assert "its probe raised OSError: no such library" in bad["missing"]
    assert (False, "") == (bad["available"], good["missing"])


def test_all_about_a_compiler_is_a_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sheet of a compiler has its options, what it compiles, and what it caches."""
    offer(monkeypatch, absent(caches=True, tunes=lambda options: False), absent("other"))
    sheet = Texts.of_rows(describe_compilers(list_compilers(["absent"])), form="sheets").to_text(100)

    assert sheet.startswith("absent\n")
    assert "no-such-package is missing" in sheet
    assert "3 by default, or 1: how much" in sheet
    assert "true by default" in sheet
    assert "an ONNX file" in sheet
    assert "compiled networks and results of tuning" in sheet
    assert "other" not in sheet


def test_a_compiler_that_there_is_not_is_told() -> None:
    """The error of an unknown compiler suggests the nearest name."""
    with pytest.raises(UnknownNameError, match="Did you mean openvino"):
        list_compilers(["identity,opnvino"])


def test_the_baseline_is_listed_with_its_version() -> None:
    """The baseline is listed as available, with its version."""
    (identity,) = list_compilers(["identity"])

    assert (True, "") == (identity["available"], identity["missing"])
    assert all(identity["packages"].values())


def test_runs_say_how_far_they_came_and_how_to_ask_for_them(state_dir: Path) -> None:
    """A run that was stopped has pending trials; without runs there is no row."""
    none = list_runs()
    sweep = Sweep(["resnet18"], ["identity", "openvino"], [1, 2, 3], repeats=7)
    folder = state_dir / "runs" / "20300101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(build_metadata(folder.name, sweep)))
    with Journal(folder / "journal.sqlite") as journal:
        journal.finish([Failure(trial_id=sweep.trials()[0].id, status="timeout", stage="compile", error="too long")])
    (row,) = list_runs()

    assert [] == none
    assert (folder.name, 6, ["resnet18"]) == (row["run"], row["trials"], row["workloads"])
    assert {"timeout": 1, "pending": 5} == row["statuses"]
    assert "-c identity,openvino -b 1:3 -r 7" == row["options"]


def fail_all(state_dir: Path, details: Mapping[str, str]) -> tuple[Sweep, str]:
    """A run all of whose trials failed: with that detail, by compiler."""
    sweep = Sweep(["resnet18"], list(details), [1, 2])
    folder = state_dir / "runs" / "20300101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(build_metadata(folder.name, sweep)))
    with Journal(folder / "journal.sqlite") as journal:
        journal.finish(
            [
                Failure(
                    trial_id=trial.id,
                    status="failed",
                    stage="compile",
                    error="RuntimeError: it fell over",
                    detail=details[trial.compiler],
                )
                for trial in sweep.trials()
            ]
        )
    return sweep, folder.name


def test_failures_say_what_was_said_last(state_dir: Path) -> None:
    """A listing of failures has the last lines of output, once for trials that failed alike."""
    long = "\n".join(f"line {number}" for number in range(100))
    sweep, run_id = fail_all(state_dir, {"openvino": long, "tvm": "Traceback\n  File x"})
    rows = list_failures(run_id[:8])
    openvino, tvm = describe_failures(rows)

    assert [str(trial) for trial in sweep.trials()] == [row["trial"] for row in rows]
    assert {long, "Traceback\n  File x"} == {row["detail"] for row in rows}
    assert "\n".join(f"line {number}" for number in range(88, 100)) == openvino["said last"]
    assert "resnet18 batch 1 tvm on cpu; resnet18 batch 2 tvm on cpu" == tvm["trials"]
    assert ("compile", "RuntimeError: it fell over") == (tvm["failed in"], tvm["error"])


def test_only_a_few_of_many_trials_are_named(state_dir: Path) -> None:
    """A sheet has the first trials of a failure and the number of the others."""
    _, run_id = fail_all(state_dir, {"openvino": ""})
    (sheet,) = describe_failures(list_failures(run_id) * 3)

    assert sheet["trials"].endswith("; and 2 more")


def test_failures_need_a_run(state_dir: Path) -> None:
    """An unknown run is an error."""
    with pytest.raises(RunNotFoundError):
        list_failures("2099")


ROWS = [{"name": "a", "here": True, "options": {"level": 3}}, {"name": "<b>", "here": False, "others": ["x", "y"]}]


def test_rows_are_written_as_aligned_text() -> None:
    """A value that a row lacks is blank; without rows there is a sentence."""
    text = Texts.of_rows(ROWS, "nothing").to_text()

    assert ["name  here  options  others", "a     yes   level 3", "<b>   no             x, y"] == text.splitlines()
    assert "nothing" == Texts.of_rows([], "nothing").to_text()


def test_rows_are_written_as_a_table_of_a_page() -> None:
    """The HTML of rows is one table, and their texts are escaped."""
    html = Texts.of_rows(ROWS, "nothing").to_html()

    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert (3, 4) == (html.count("<tr>"), html.count("<th "))
    assert "<p>nothing</p>" == Texts.of_rows([], "nothing").to_html()


def test_a_long_list_is_folded_in_a_page_and_a_name_is_not() -> None:
    """A page folds a long list after commas and never folds a name."""
    html = Texts.of_rows([{"run": "20300101-000000-abcd", "options": "-c identity,openvino"}], "nothing").to_html()

    assert re.search(r'<td style="[^"]*nowrap;">20300101-000000-abcd</td>', html)
    assert "-c identity,<wbr>openvino" in html


WIDE = [
    {"name": "short", "path": "a/path/that/nobody/could/copy", "words": "one two three four five six seven eight nine"},
    {"name": "other", "path": "", "words": "ten"},
]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_is_as_wide_as_it_may_be(width: int) -> None:
    """A table folds long cells at blanks within their column, to its width."""
    lines = Texts.of_rows(WIDE).to_text(width).splitlines()

    assert max(map(len, lines)) <= width
    assert "a/path/that/nobody/could/copy" in lines[1]
    assert WIDE[0]["words"].split() == [word for line in lines[1:-1] for word in line[36:].split()]
    assert lines[-1].startswith("other")


def test_a_narrow_table_keeps_its_names_whole() -> None:
    """A table that is too narrow keeps its names whole and splits long words."""
    text = Texts.of_rows(WIDE).to_text(10)

    assert all(line[:5] in ("name ", "short", "other", "     ") for line in text.splitlines())
    assert "a/path/that/nobody/c" in text


def test_a_column_that_holds_nothing_is_left_out() -> None:
    """A table omits an empty column."""
    assert "name\na" == Texts.of_rows([{"name": "a", "missing": ""}], "").to_text()


SHEETS = [
    {"name": "first", "said": "  one\n    two", "empty": ""},
    {"name": "<b>", "words": "a b c d e f g h i j k l m"},
]


def test_sheets_stand_one_below_the_other() -> None:
    """A value of several lines stands as it is, one of a single line is folded, and an empty one is left out."""
    text = Texts.of_rows(SHEETS, "nothing", "sheets").to_text(30)
    first, second = text.split("\n\n")

    assert ["first", "  said    one", "            two"] == first.splitlines()
    assert ["<b>", "  words  a b c d e f g h i j k", "         l m"] == second.splitlines()
    assert "nothing" == Texts.of_rows([], "nothing", "sheets").to_text()


def test_sheets_are_one_table_of_a_page() -> None:
    """The HTML of sheets is one table; their texts are escaped, and their lines remain."""
    html = Texts.of_rows(SHEETS, "nothing", "sheets").to_html()

    assert "&lt;b&gt;" in html
    assert ">  one\n    two</pre>" in html
    assert (1, 2) == (html.count("<table"), html.count("<th "))
    assert "<p>nothing</p>" == Texts.of_rows([], "nothing", "sheets").to_html()


def test_nothing_that_a_terminal_would_obey_is_written() -> None:
    """A compiler prints colours, and a file that came from elsewhere may hold worse."""
    rows = [{"name": "\x1b[31mred\x1b[0m\x07 and\tplain"}]
    renderings = (
        Texts.of_rows(rows).to_text(),
        Texts.of_rows(rows, form="sheets").to_text(),
        Texts.of_rows(rows).to_html(),
    )

    assert all("\x1b" not in text and "\x07" not in text for text in renderings)
    assert renderings[0].splitlines()[1].startswith("red")

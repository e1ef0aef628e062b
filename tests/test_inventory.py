"""What there is: devices, compilers and runs, as rows and as tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ngbkit import environment, inventory, registry
from ngbkit.compilers.base import Compiler, Option
from ngbkit.journal import Journal
from ngbkit.records import Failure
from ngbkit.sweep import Sweep


def test_devices_say_what_they_are() -> None:
    """This machine's own with its chip and the cores that can be used."""
    (device,) = inventory.list_devices()

    assert ("cpu", environment.cores_usable()) == (device["device"], device["cores"])
    assert device["chip"]


def test_compilers_say_what_is_missing_and_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the options that each takes, and their defaults."""
    absent = Compiler(
        name="absent",
        summary="not here",
        forms={},
        packages=("no-such-package",),
        install="pip install no-such-package",
        compile=lambda task: pytest.fail("it is only listed"),
        options={"level": Option(default=3, help="how much")},
    )
    monkeypatch.setattr(registry, "load_all", lambda group: {"absent": absent})
    (row,) = inventory.list_compilers()

    assert ("absent", None, False, {"level": 3}) == tuple(
        row[name] for name in ("compiler", "version", "available", "options")
    )
    assert "pip install no-such-package" in row["missing"]


def test_the_baseline_is_listed_with_its_version() -> None:
    """What is here can be used, and says which one it is."""
    (identity,) = [row for row in inventory.list_compilers() if row["compiler"] == "identity"]

    assert (True, "") == (identity["available"], identity["missing"])
    assert identity["version"]


def test_runs_say_how_far_they_came_and_how_to_ask_for_them(state_dir: Path) -> None:
    """A run that was stopped has pending trials; without runs there is no row."""
    none = inventory.list_runs()
    sweep = Sweep(["resnet18"], ["identity", "openvino"], [1, 2, 3], repeats=7)
    folder = state_dir / "runs" / "20300101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"format": 1, "id": folder.name, "created": 0, "sweep": sweep.to_json()})
    )
    with Journal(folder / "journal.sqlite") as journal:
        journal.finish([Failure(trial_id=sweep.trials()[0].id, status="timeout", stage="compile", error="too long")])
    (row,) = inventory.list_runs()

    assert [] == none
    assert (folder.name, 6, ["resnet18"]) == (row["run"], row["trials"], row["workloads"])
    assert {"timeout": 1, "pending": 5} == row["statuses"]
    assert "-c identity,openvino -b 1:3 -r 7" == row["options"]


ROWS = [{"name": "a", "here": True, "options": {"level": 3}}, {"name": "<b>", "here": False, "others": ["x", "y"]}]


def test_rows_are_written_as_aligned_text() -> None:
    """A value that a row lacks is blank; without rows there is a sentence."""
    text = inventory.to_text(ROWS, "nothing")

    assert ["name  here  options  others", "a     yes   level 3", "<b>   no             x, y"] == text.splitlines()
    assert "nothing" == inventory.to_text([], "nothing")


def test_rows_are_written_as_a_table_of_a_page() -> None:
    """What they hold is text, and never markup."""
    html = inventory.to_html(ROWS, "nothing")

    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert (3, 4) == (html.count("<tr>"), html.count("<th "))
    assert "<p>nothing</p>" == inventory.to_html([], "nothing")

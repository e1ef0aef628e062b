"""The fields that compose a sweep, and the line that they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import wait_until

from ngbkit.api import Sweep
from ngbkit.commands.compilers import list_compilers
from ngbkit.panels import compose
from ngbkit.panels.compose import ComposeSection
from ngbkit.panels.line import Line
from ngbkit.panels.page import Page

CELL = "import torch\nmodel = lambda width: torch.nn.Linear(width, 8)\ninput_shape = (8,)\n"


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def section(page: Page, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComposeSection]:
    """The section, whose probe has ended, with a module ``mine`` in the notebook."""
    rows = [
        {"compiler": "tvm", "available": False, "missing": "apache-tvm is not installed"},
        {"compiler": "identity", "available": True, "missing": ""},
        {"compiler": "openvino", "available": True, "missing": ""},
    ]
    monkeypatch.setattr(compose, "list_compilers", lambda: rows)
    lines: list[Line] = []
    section = ComposeSection(page, lambda: ["mine"], lines.append, lambda: {"In[3]": CELL, "In[4]": "1 +"})
    section.started = lines  # type: ignore[attr-defined]
    wait_until(lambda: "not available here" in page.parts.get("compose", ""))
    yield section
    section.close()


def find_errors(page: Page) -> list[str]:
    """Find the errors that the fields show."""
    return [text for text in re.findall(r'class="error"[^>]*>([^<]*)<', page.parts["compose"]) if text]


def read_line(page: Page) -> str:
    """Read the line that the panel shows."""
    return re.search(r'data-copy="([^"]*)"', page.parts["compose"])[1].replace("&#34;", '"').replace("&quot;", '"')


def test_enter_adds_a_network(page: Page, section: ComposeSection, mlp_file: Path) -> None:
    """A name, a file, a module and several of them are chips that their own button removes."""
    for words in ("resnet18", str(mlp_file), "mine,resnet34", "resnet18"):
        page.act("network-add", words)

    assert ("resnet18", str(mlp_file), "mine", "resnet34") == section.line.workloads
    assert 'aria-label="remove resnet34"' in page.parts["compose"]

    page.act("network-remove", "resnet18")

    assert "resnet18" not in section.line.workloads


def test_a_wrong_name_is_no_chip(page: Page, section: ComposeSection) -> None:
    """The error stands at the field, what was typed stays, and typing on removes the error."""
    page.act("network-add", "resnet1")

    assert () == section.line.workloads
    assert ["unknown workload &#39;resnet1&#39;. Did you mean resnet18, resnet61q or resnet51q?"] == [
        error.partition(" A workload")[0] for error in find_errors(page)
    ]
    assert 'value="resnet1"' in page.parts["compose"]
    assert 'aria-invalid="true"' in page.parts["compose"]

    page.act("search", "resnet18")

    assert [] == find_errors(page)


def test_names_are_suggested(page: Page, section: ComposeSection) -> None:
    """The names that begin with what is typed come first, then those that contain it."""
    page.act("search", "NET18")
    names = re.findall(r'<option value="([^"]*)"></option>', page.parts["compose"])

    assert "resnet18" in names
    assert len(names) <= 12

    page.act("search", "mi")

    assert "mine" == re.findall(r'<option value="([^"]*)"></option>', page.parts["compose"])[0]


def test_fields_and_line_are_one(page: Page, section: ComposeSection) -> None:
    """A changed field changes the line, and a pasted line fills the fields."""
    page.act("network-add", "resnet18")
    page.act("field-batch_sizes", "1,4")
    page.act("use-compiler-torchscript", True)

    assert "%ngbench resnet18 -c identity,onnxruntime,openvino,torchscript -b 1,4 -o ds" == read_line(page)
    assert "8 trials in 2 groups" in page.parts["compose"]

    page.act("line", "%ngbench resnet34 -c identity -b 2 -r 7 --together -o it1")

    assert ("resnet34",) == section.line.workloads
    for value in ('value="7"', 'value="it1"', 'value="--together"'):
        assert value in page.parts["compose"]


def test_an_invalid_line_is_kept_with_its_error(page: Page, section: ComposeSection) -> None:
    """A pasted line that is none stays to be mended, and the fields stay as they were."""
    page.act("network-add", "resnet18")
    page.act("line", "%ngbench resnet18 --treads 2")

    assert 'value="%ngbench resnet18 --treads 2"' in page.parts["compose"]
    assert ["unknown option &#39;--treads&#39;. Did you mean --threads or --repeats?"] == find_errors(page)
    assert ("resnet18",) == section.line.workloads


def test_an_invalid_field_cannot_run(page: Page, section: ComposeSection) -> None:
    """The error is at the field, and Run is disabled until it is mended."""
    page.act("network-add", "resnet18")
    page.act("field-batch_sizes", "none")

    (error,) = find_errors(page)

    assert error.startswith("invalid batch size: got &#39;none&#39;")
    assert re.search(r'data-click="run"[^>]*disabled', page.parts["compose"])

    page.act("field-batch_sizes", "1")

    assert not re.search(r'data-click="run"[^>]*disabled', page.parts["compose"])


def test_a_block_has_fields_of_its_factors(page: Page, section: ComposeSection) -> None:
    """A network that takes factors asks for their values in fields of their own."""
    page.act("network-add", "blocks.conv")

    assert "width (factor)" in page.parts["compose"]
    assert any("needs a value of width and depth" in error for error in find_errors(page))

    page.act("factor-width", "32,64")
    page.act("factor-depth", "2")

    assert [] == find_errors(page)
    assert "--factor width=32,64 --factor depth=2" in read_line(page)


def test_a_compiler_with_options_is_a_column(page: Page, section: ComposeSection) -> None:
    """Options are fields; a column of them stands beside the plain one until its chip removes it."""
    page.act("network-add", "resnet18")
    page.act("option-openvino-hint", "throughput")
    page.act("column-add", "openvino")

    assert 'identity,onnxruntime,openvino,openvino{"hint":"throughput"}' in read_line(page)

    page.act("column-remove", 'openvino{"hint":"throughput"}')

    assert "-c identity,onnxruntime,openvino -b" in read_line(page)


def test_a_compiler_that_is_missing_says_what_installs_it(page: Page, section: ComposeSection) -> None:
    """A missing compiler cannot be ticked, and its reason is in the list below."""
    assert re.search(r'data-change="use-compiler-tvm"[^>]*disabled', page.parts["compose"])
    assert "apache-tvm is not installed" in page.parts["compose"]
    assert "tvm" not in section.line.compilers
    assert [] == [row for row in list_compilers() if not row["available"] and "install" not in row["missing"]]


def test_known_trials_can_be_measured_again(page: Page, section: ComposeSection) -> None:
    """The box is the option of the line, and the line is the box."""
    page.act("network-add", "resnet18")
    page.act("again", True)

    assert read_line(page).endswith("--again -o ds")

    page.act("line", "%ngbench resnet18 --threads 2")

    assert not re.search(r'data-change="again"[^>]*checked', page.parts["compose"])


def test_a_changed_line_says_nothing_of_known_trials(page: Page, section: ComposeSection) -> None:
    """The sentence on known trials is of the line before, and may be wrong of this one."""
    page.act("network-add", "resnet18")
    page.show("known", "all 2 trials are known")
    page.act("again", True)

    assert "" == page.parts["known"]


def test_run_measures_the_line(page: Page, section: ComposeSection) -> None:
    """Run starts what the fields are, and no engine is started for a sweep before a network is there."""
    page.act("network-add", "resnet18")
    page.act("run")

    assert [section.line] == section.started  # type: ignore[attr-defined]


def test_an_engine_starts_while_the_user_types(page: Page, section: ComposeSection, started: list[Sweep]) -> None:
    """The engines of the first valid sweep start before Run is pressed, and once."""
    assert [] == started

    page.act("network-add", "mine")
    page.act("field-batch_sizes", "2")

    assert [("cpu",)] == [sweep.devices for sweep in started]


def test_a_time_that_is_unknown_ends_nothing(
    page: Page, section: ComposeSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the estimate is a sentence beside a button that works."""
    monkeypatch.setattr(compose, "list_notices", lambda *_, **__: 1 / 0)
    page.act("network-add", "mine")

    assert "the time is unknown: division by zero" in page.parts["compose"]
    assert not re.search(r'data-click="run"[^>]*disabled', page.parts["compose"])


def test_a_cell_of_the_notebook_is_a_network(page: Page, section: ComposeSection) -> None:
    """A cell is suggested and added by its name, has fields of its factors, and is the body of the copied cell."""
    page.act("search", "in[")

    assert '<option value="In[3]">' in page.parts["compose"]

    page.act("network-add", "In[3]")
    page.act("factor-width", "8")

    assert "" == section.line.find_errors().get("line", "")
    assert 'aria-label="remove In[3]"' in page.parts["compose"]
    assert "%%ngbench -c identity,onnxruntime,openvino -b 1 --factor width=8 -o ds\n" + CELL == section.line.to_cell()
    assert ["cell"] == [network.source for network in section.line.to_sweep().workloads]

    page.act("network-remove", "In[3]")

    assert not section.line.has_networks


def test_a_cell_without_a_network_is_refused(page: Page, section: ComposeSection) -> None:
    """The error of a cell stands at the field, and the cell is not added."""
    page.act("network-add", "In[4]")

    assert not section.line.has_networks
    assert 1 == len(find_errors(page))

"""One declaration a thing: an option of a sweep or a variable of the dataset, added in one place, is everywhere."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rooms import FILES

import ngbkit

PACKAGE = Path(ngbkit.__file__).parent

OPTION = """
    encores: PositiveCount | None = field(
        default=None, metadata=option("Rounds to measure once more at the end. Default: none.")
    )

"""
VARIABLE = """
    humidity_percent: float | None = variable("humidity", "%", "humidity of the room", "NaN where no sensor is")
"""


def run_with(tmp_path: Path, file: str, before: str, declaration: str, program: str) -> dict[str, object]:
    """Run a program with a copy of the package in which one file has one declaration more; return what it prints."""
    shutil.copytree(PACKAGE, tmp_path / "ngbkit", ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path / "ngbkit" / file
    text = target.read_text()
    assert 1 == text.count(before)
    target.write_text(text.replace(before, declaration.lstrip("\n") + before))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parent)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_option_is_declared_once(tmp_path: Path) -> None:
    """Signature, documentation, check, JSON, words, the shell, the magic, Tab, the panel and the page have it."""
    from ngbkit.sweep.option import options_of

    assert "encores" not in options_of(ngbkit.Sweep)  # or the checks below would hold without the declaration
    program = """
import argparse, contextlib, inspect, io, json
from ngbkit import Sweep, cli
from ngbkit.api import Sweep as declared
from ngbkit.commands import arguments
from ngbkit.errors import UsageError
from ngbkit.commands.run import COMMAND
from ngbkit.notebook import completion
from ngbkit.panels.line import Line
from ngbkit.sweep.argument import to_markdown

def refusal(value):
    try:
        Sweep("blocks.conv", encores=value, factors={"width": 8, "depth": 1})
    except UsageError as error:
        return str(error)

def shown(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        cli.main(words)
    return out.getvalue()

assert inspect.signature(Sweep).parameters["encores"].default is None
factors = {"width": [8], "depth": [1]}
sweep = Sweep("blocks.conv", encores=3, factors=factors)
old = {name: value for name, value in sweep.to_json().items() if name != "encores"}
line = Line(workloads=("blocks.conv",), factors="width=8 depth=1", more="--encores 4")
print(json.dumps({
    "doc": "Rounds to measure once more at the end" in Sweep.__doc__,
    "refusal": refusal(0),
    "json": sweep.to_json()["encores"],
    "round trip": Sweep.from_json(sweep.to_json()) == sweep,
    "old file": Sweep.from_json(old).encores,
    "words": sweep.to_words()[-2:],
    "default": Sweep.from_json(old).to_words() == sweep.to_words()[:-2],
    "shell": "rounds to measure once more at the end" in " ".join(shown("run", "--help").split()),
    "magic": any("--encores" in argument.flags for argument in COMMAND.magic_arguments),
    "tab": completion.complete("ngbench", "resnet18 --enc", {})[1],
    "panel": line.to_sweep().encores,
    "page": [row for row in to_markdown(COMMAND.magic_arguments).splitlines() if "--encores" in row],
}))
"""
    found_in = run_with(tmp_path, "sweep/grid.py", "    def __attrs_post_init__", OPTION, program)

    assert found_in == {
        "doc": True,
        "refusal": "invalid encores: got 0; expected an integer >= 1.",
        "json": 3,
        "round trip": True,
        "old file": None,
        "words": ["--encores", "3"],
        "default": True,
        "shell": True,
        "magic": True,
        "tab": ["--encores"],
        "panel": 4,
        "page": ["| `--encores N` | rounds to measure once more at the end (default: none) |"],
    }


def test_a_variable_is_declared_once(tmp_path: Path) -> None:
    """The dataset and its file have it with its unit, old records lack it, and no factor takes its name."""
    program = """
import json, math
import ngbkit
from ngbkit import Sweep
from ngbkit.dataset import assemble
import synthetic
from ngbkit.errors import UsageError
from ngbkit.sweep import records

sweep = Sweep("blocks.conv", ["identity"], factors={"width": [8], "depth": [1]}, repeats=3)
(record,) = synthetic.make_records(sweep)
old = records.to_json(record)
del old["humidity_percent"]
wet = records.from_json({**old, "humidity_percent": 40.0})
data = assemble(sweep, [wet])
ngbkit.save(data, "wet.nc")
again = ngbkit.load("wet.nc")["humidity"]

def refusal():
    try:
        Sweep(ngbkit.cell.from_source(
            "from torch import nn\\n\\ndef model(humidity):\\n    return nn.Linear(humidity, 1)\\n\\n"
            "input_shape = lambda humidity: (humidity,)\\n", name="wet"
        ), factors={"humidity": [1, 2]})
    except UsageError as error:
        return str(error)

print(json.dumps({
    "values": again.values.ravel().tolist(),
    "attributes": dict(again.attrs),
    "dims": list(again.dims) == [dim for dim in data["latency"].dims if dim != "repeat"],
    "old record": math.isnan(assemble(sweep, [records.from_json(old)])["humidity"].item()),
    "refusal": refusal(),
}))
"""
    found_in = run_with(
        tmp_path,
        "sweep/records.py",
        '    started_at: Seconds = 0.0\n    origin: Line = ""\n\n    @property',
        VARIABLE,
        program,
    )

    assert found_in == {
        "values": [40.0],
        "attributes": {"units": "%", "long_name": "humidity of the room", "comment": "NaN where no sensor is"},
        "dims": True,
        "old record": True,
        "refusal": "invalid factor 'humidity': the dataset uses that name. Call it humidity_factor.",
    }


def test_each_declaration_is_complete() -> None:
    """A variable has a unit, or is a text that says so, and a long name; an option has help and documentation."""
    from ngbkit.api import Sweep
    from ngbkit.sweep.option import options_of
    from ngbkit.sweep.variables import COORDINATES, VARIABLES

    assert [] == [name for name, variable in {**VARIABLES, **COORDINATES}.items() if not variable.long_name]
    assert [] == [name for name, option in options_of(Sweep).items() if not (option.doc and option.argument.help)]


@pytest.mark.parametrize("name", ["repeats", "threads", "flush_l2"])
def test_a_wrong_value_is_called_by_its_name(name: str) -> None:
    """The error of an invalid option has its name, the value, and the expected values."""
    with pytest.raises(ngbkit.errors.UsageError, match=rf"invalid {name}: got 'x'; expected"):
        ngbkit.Sweep("resnet18", **{name: "x"})


# The column of a label; and the text of its braces, which the labels of networks have, too.
READERS = ("sweep/column.py", "workloads/labels.py")
SPLITTERS = {"partition", "rpartition", "split", "rsplit", "find", "rfind", "index", "rindex", "removesuffix"}


def list_splits(source: str) -> list[int]:
    """The lines of a module that split a label by text, or ask one for the name of an option."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SPLITTERS:
            lines += [node.lineno for each in node.args if isinstance(each, ast.Constant) and each.value in ("@", "{")]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            sign = ast.unparse(node.left)
            lines += [node.lineno] * (sign == "'@'" or '"precision"' in sign or "{PRECISION}" in sign)
        elif isinstance(node, ast.Constant) and node.value == "†":
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    "line",
    [
        'name = label.partition("{")[0]',
        'name, _, release = column.rpartition("@")',
        "is_lower = f'\"{PRECISION}\":' in label",
        "is_lower = '\"precision\":' in label",
        'is_marked = label.endswith("†")',
    ],
)
def test_a_split_of_a_label_is_noticed(line: str) -> None:
    """The test below would fail on such a line."""
    assert [1] == list_splits(line)


def test_nothing_else_splits_a_label() -> None:
    """A label is read by its column alone, and the braces of all labels are separated in one place."""
    splits = {name: list_splits(path.read_text()) for name, path in FILES.items() if name not in READERS}

    assert {} == {name: lines for name, lines in splits.items() if lines}

"""One record a command: a plugin's is in the shell, in a notebook, in Tab, in the page of options, and in errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ngbkit import registry
from ngbkit.commands.command import Command, load_commands, load_magics
from ngbkit.commands.parser import build_parser, parse
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import Argument

PLUGIN = """
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import Command, Magic
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import argument


def greet(call):
    if call.args.device == "nobody":
        raise UsageError("invalid device: got nobody. `ngbkit greet cpu` works.")
    row = {"device": call.args.device, "greeting": call.args.word}
    return Answer.of_rows([row], json=[row], notes=["`ngbkit greet cpu` greets again."])


COMMAND = Command(
    name="greet",
    help="Greet a device.",
    arguments=(
        argument("device", metavar="DEVICE", completes="device", help="the device to greet"),
        argument("--word", metavar="WORD", default="hello", help="the word of the greeting"),
    ),
    run=greet,
    magic=Magic(name="nggreet", details="::\\n\\n    %nggreet cpu"),
    in_python={"": "greetings.greet('{}')"},
)
"""
ENTRY_POINTS = """
[ngbkit.commands]
broken = no_such_module:COMMAND
greet = greeting:COMMAND
wrong = greeting:greet
"""
PROGRAM = """
import contextlib, io, json, os, sys, tempfile
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from ngbkit import cli, errors
import pages

def shell(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(words)
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()

def press_tab(line):
    file = tempfile.mktemp()
    if os.fork() == 0:
        os.environ |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "|", "_ARGCOMPLETE_STDOUT_FILENAME": file}
        os.environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
        sys.exit(cli.main([]))
    os.wait()
    return [word for word in open(file).read().split("|") if word]

ipython = InteractiveShell()
with capture_output() as loading:
    ipython.run_line_magic("load_ext", "ngbkit")
with capture_output() as failing:
    ipython.run_cell("%nggreet nobody")
answer = ipython.run_line_magic("nggreet", "cpu --word hi")
proposal = "Use `ngbkit greet cpu`."
print(json.dumps({
    "help": shell("--help"),
    "command help": shell("greet", "--help"),
    "json": shell("greet", "cpu", "--word", "hi", "--json"),
    "text": shell("greet", "cpu"),
    "error": shell("greet", "nobody"),
    "tab": [press_tab(line) for line in ("ngbkit gre", "ngbkit greet c", "ngbkit greet cpu --wo")],
    "magic": [repr(answer), answer._repr_html_()],
    "magic error": failing.stdout,
    "?": ipython.object_inspect_text("%nggreet"),
    "magic tab": [ipython.complete("", line, len(line))[1] for line in ("%nggreet c", "%nggreet cpu --w")],
    "page": pages.render_options(),
    "proposals": [proposal, *(errors.translate_commands(proposal, place) for place in ("magic", "python"))],
}))
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Everything that a user sees of the plugin's command, in a process that has the plugin."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "greeting.py").write_text(PLUGIN)
    info = folder / "greeting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    paths = [str(folder), str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "IPYTHONDIR": str(folder / "ipython")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_shell_has_the_command(places: dict[str, Any]) -> None:
    """The shell has the help, the table and the JSON of the command's record."""
    code, text, _ = places["help"]
    assert 0 == code
    assert "greet     Greet a device." in text
    code, text, _ = places["command help"]
    assert 0 == code
    for words in ("usage: ngbkit greet", "Greet a device.", "the device to greet", "--word WORD", "--json"):
        assert words in text

    assert [0, [{"device": "cpu", "greeting": "hi"}]] == [places["json"][0], json.loads(places["json"][1])]
    assert "device  greeting\ncpu     hello\n\n`ngbkit greet cpu` greets again.\n" == places["text"][1]


def test_a_notebook_has_the_magic(places: dict[str, Any]) -> None:
    """A notebook has the table, the help and the errors of the command in the words of magics."""
    text, html = places["magic"]

    assert "device  greeting\ncpu     hi\n\n`%nggreet cpu` greets again." == text
    assert html.startswith("<table")
    assert "UsageError: invalid device: got nobody. `%nggreet cpu` works." in places["magic error"]
    for words in ("Greet a device.", "%nggreet cpu", "--word WORD", "the device to greet"):
        assert words in places["?"]


def test_tab_completes_the_command(places: dict[str, Any]) -> None:
    """A shell and a notebook offer its name, its values and its options."""
    assert [["greet"], ["cpu"], ["--word"]] == places["tab"]
    assert [["cpu"], ["--word"]] == places["magic tab"]


def test_the_page_of_options_has_the_command(places: dict[str, Any]) -> None:
    """A section lists its arguments."""
    assert "## `%nggreet`\n\n| argument | |\n| --- | --- |\n| `DEVICE` | the device to greet |\n" in places["page"]


def test_errors_propose_the_command(places: dict[str, Any]) -> None:
    """The sentence names a command, a magic or a call, as its reader types it."""
    assert [2, "", "ngbkit: invalid device: got nobody. `ngbkit greet cpu` works.\n"] == places["error"]
    assert ["Use `ngbkit greet cpu`.", "Use `%nggreet cpu`.", "Use `greetings.greet('cpu')`."] == places["proposals"]


def test_a_broken_plugin_gives_a_warning(places: dict[str, Any]) -> None:
    """Other commands work, and do not mention it."""
    _, _, warnings = places["help"]

    assert "warning: the ngbkit.commands plugin 'broken' (no_such_module:COMMAND) failed to load" in warnings
    assert "warning: invalid plugin 'wrong' of ngbkit.commands" in warnings
    assert ["", ""] == [places["json"][2], places["text"][2]]


def test_each_file_of_a_command_exports_one_record() -> None:
    """The entry point, the record and the file have one name."""
    for entry_point in metadata.entry_points(group=registry.COMMANDS):
        record = entry_point.load()

        assert isinstance(record, Command)
        assert entry_point.name == record.name == entry_point.module.rpartition(".")[2]


def test_help_is_a_sentence() -> None:
    """`ngbkit --help` and the first line of `?` display it."""
    commands = {**load_commands(), **load_magics()}.values()

    assert [] == [command.name for command in commands if not (command.help[0].isupper() and command.help[-1] == ".")]


def test_the_metrics_of_a_help_are_compared() -> None:
    """Each metric that the help of `compare` proposes is one that it compares."""
    from ngbkit.metrics.metric import load_frame_metrics

    (declared,) = (each for each in load_commands()["compare"].arguments if "--metric" in each.flags)
    text = declared.keywords["help"].partition("such as ")[2].partition(";")[0]

    assert {"throughput", "rtr", "accuracy"} == set(text.replace(" or ", ", ").split(", ")) <= {*load_frame_metrics()}


FILES = {
    f"{name} {declared.flags[-1]}": declared
    for name, command in load_commands().items()
    for declared in (*command.shell_arguments, *command.magic_arguments)
    if declared.names_file
}


@pytest.mark.parametrize("declared", FILES.values(), ids=FILES)
def test_no_argument_of_a_file_takes_a_pipe_or_a_device(declared: Argument, tmp_path: Path) -> None:
    """A pipe would block and a device may have no end: each is refused before it is opened or replaced."""
    os.mkfifo(tmp_path / "pipe.nc")
    metavar = declared.settings.get("metavar")
    count = len(metavar) if isinstance(metavar, tuple) else 1
    option = declared.flags[:1] if declared.flags[0].startswith("-") else ()
    for path in (f"{tmp_path}/pipe.nc", "/dev/zero", f"net={tmp_path}/pipe.nc"):
        with pytest.raises(
            UsageError, match=r"argument .*: got .*(pipe\.nc|/dev/zero), a device or a pipe; expected a file"
        ):
            parse(build_parser("ngbkit", [declared]), [*option, *[path] * count])
    folder = parse(build_parser("ngbkit", [declared]), [*option, *[str(tmp_path)] * count])

    assert str(tmp_path) in str(folder)


def test_files_are_found_by_their_declarations() -> None:
    """An argument of a file says so, by its value's name or by what Tab completes."""
    assert {"run --earlier", "runs --predictor", "run --inputs", "verify --signer", "run --out", "show source"} <= {
        *FILES
    }

"""Fuzzes the command line: any words for any command end with an exit code, and never with a traceback.

    python tests/fuzz/run.py command_lines --cases 10000

The command lines are built from the tables of the real parser. They run in this process, in an empty folder with an
empty state folder, and start no other process: whatever would measure, or read a netCDF file, ends with a
`DeviceError`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import hypothesis
import pytest
from cases import SETTINGS
from hypothesis import strategies as st

from ngbkit import cli
from ngbkit.commands.command import load_commands
from ngbkit.errors import DeviceError
from ngbkit.sweep.argument import Argument

CODES = {cli.OK, cli.FAILED, cli.INVALID, cli.INTERRUPTED, cli.BROKEN_PIPE}
# A command line that takes longer hangs.
LIMIT_S = 60

_DEEP = 100_000
# No argument of a program holds a zero; the list of hostile values has some, since a magic's argument may.
_SIGNS = st.characters(exclude_characters="\0")
# Files of the folder in which each command line runs, by name.
FILES: dict[str, bytes] = {
    "good.py": b"import torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)\n",
    "deep.py": b"model = " + b"(" * _DEEP + b")" * _DEEP,
    "unary.py": b"model = " + b"-" * _DEEP + b"1",
    "chain.py": b"model = f" + b".a" * _DEEP,
    "binary.py": bytes(range(256)),
    "null.py": b"model = 1\0",
    "bad.py": b"def",
    "empty.py": b"",
    "empty.onnx": b"",
    "garbage.onnx": b"\x08\x0a" * 100,
    "empty.nc": b"",
    "garbage.nc": b"\x89HDF\r\n\x1a\n" + b"\xff" * 200,
    "empty.tar.gz": b"",
    "garbage.safetensors": b"\xff" * 64,
    "garbage.ipynb": b"{",
    "brackets.json": b"{}",
    "deep.ipynb": b"[" * _DEEP,
}
HOSTILE = (
    *("", " ", "-", "--", "=", ",", ",,", ":", "::", ".", "..", "/", "\n", "\x1b[31mred", "\udcff", "é\u202e", "%s"),
    *("{", "}", "{}", "[]", "null", "{0}", "x{", "identity{", "onnxruntime{}", 'onnxruntime{"optimization":', "'", '"'),
    # Paths.
    *("~", "~nouser", "~nouser/x.onnx", "~nouser/x.py", "~nouser/x.nc", "a" * 300, "a" * 300 + ".onnx", "a" * 5000),
    *("a" * 300 + ".py", "a" * 300 + ".nc", "a" * 5000 + ".nc", "x\0.onnx", "x\0.py", "x\0.nc", "x\0", "no/file.nc"),
    *("/dev/full", "/dev/null/x", "/proc/self/mem", "/nowhere/at/all.html", "f.nc", "f.html", "f.csv", "f.json"),
    *("folder", "folder.nc", "folder.py", "folder.onnx", "loop.nc", "loop.py", "loop.onnx", "loop", "empty.onnx/x.nc"),
    # Numbers.
    *("0", "-1", "1.5", "1e5", "1e400", "-1e400", "nan", "inf", "0x10", "9" * 400, "9" * 4300, "9" * 5000, "1_0", "٣"),
    *(
        "9" * 400 + ".5",
        "1:1000000",
        "1:9" + "9" * 4400,
        "1:" + "9" * 4000,
        "3:1",
        "1:2:0",
        "1:2:1e-300",
        "²",
        "1e-400",
    ),
    *("1" * 5000 + ",2", "(3, 224)", "3,,4", "width=", "=1", "width=" + "9" * 5000, "width=1,2", "depth=1:3", "a-b=1"),
    *("5GB", "9" * 400 + "TB", "1e9GB", "30d", "9" * 400 + "w", "10%", "1e400%", "-5%", "20min", "9" * 400 + "h", "%"),
    # Labels with options.
    *("identity" + "{" * 5000, 'onnxruntime{"a":' + "[" * 20000, "resnet18" + "{" * 5000, 'timm{"a":' + "[" * 20000),
    *("blocks{", "conv{width:" + "9" * 5000 + "}", 'resnet18{"img_size":' + "9" * 5000 + "}", "resnet18{img_size=nan}"),
    *(
        'resnet18{"img_size":' + "[" * 20000 + "}",
        'onnxruntime{"optimization":' + "9" * 5000 + "}",
        'resnet18{"a":1e999}',
    ),
    *(
        "gallery-figures.a=" + "[" * 20000,
        "a.b=c",
        "a.b=" + "9" * 5000,
        "20990101-000000-aaaa",
        "--help",
        "--version",
        "-o",
    ),
    *FILES,
)
# Words that each argument may well get, so that the other words are reached.
PLAUSIBLE: dict[str, tuple[str, ...]] = {
    "cluster": tuple(FILES),
    "workloads": ("mlp.onnx", "good.py", "conv", "resnet18"),
    "network": ("mlp.onnx", "good.py"),
    "compilers": ("identity", "identity,onnxruntime", 'onnxruntime{"optimization":"basic"}'),
    "runtime": ("onnxruntime",),
    "cost": ("flops", "linear"),
    "devices": ("cpu",),
    "device": ("cpu",),
    "batch_sizes": ("1", "1,2", "1:4"),
    "factor": ("width=4,8", "depth=1:2"),
    "action": ("list", "check", "init", "clean", "export", "import", "install", "remove"),
    "out": ("out.nc", "out.csv", "out.json", "out.html"),
    "seconds": ("0.1",),
    "top": ("1",),
    "budget": ("10%",),
}


def main(words: list[str]) -> tuple[int, str]:
    """Carry out a command line in a folder of its own; return its exit code and what it printed."""
    # As Python opens them in a terminal.
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with isolate(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = cli.main(words)
        except SystemExit as end:  # --help and --version
            code = 0 if end.code is None else int(end.code)
    texts = []
    for stream in (out, errors):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(errors="replace"))  # type: ignore[attr-defined]
    return code, "\n".join(texts)


def check_command_line(words: list[str]) -> int:
    """Check that a command line ends with one of the exit codes, which is returned, and without a traceback."""
    code, text = main(words)
    assert code in CODES, (code, words)
    assert "Traceback" not in text, text
    return code


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Command lines of any command: each of its arguments may be missing, repeated, or have any value."""
    commands = load_commands()
    name = draw(st.sampled_from([*commands, *("run",) * 4, ""]))
    table = commands[name].shell_arguments if name else ()
    positional = [argument for argument in table if not argument.flags[0].startswith("-")]
    options = [argument for argument in table if argument not in positional]
    words = [name] if name else []
    for argument in positional:
        for _ in range(draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2]))):
            words.append(draw(_values(argument)))
    # Few, since the first word that is invalid hides the others.
    for argument in draw(st.lists(st.sampled_from(options), max_size=3)) if options else ():
        words.append(draw(st.sampled_from(argument.flags)))
        words += [draw(_values(argument))] if argument.takes_value else []
    return words + draw(st.sampled_from([[]] * 19 + [[draw(st.sampled_from(HOSTILE))]]))


def _values(argument: Argument) -> st.SearchStrategy[str]:
    """Values of an argument: of a list of hostile ones, any text, and the plausible ones in most cases."""
    numbers = ("1", "2") if argument.settings.get("type") in (int, float) else ()
    plausible = [*PLAUSIBLE.get(argument.dest, ()), *numbers, *map(str, argument.settings.get("choices", ()))]
    hostile = st.one_of(st.sampled_from(HOSTILE), st.sampled_from(HOSTILE), st.text(_SIGNS, max_size=12))
    return st.one_of(hostile, *[st.sampled_from(plausible)] * 2) if plausible else hostile


@contextlib.contextmanager
def isolate() -> Iterator[None]:
    """Run the block in an empty folder with an empty state folder, without other processes, and in limited time."""
    with tempfile.TemporaryDirectory(prefix="ngbkit-fuzz-") as name, pytest.MonkeyPatch.context() as patch:
        home = Path(name)
        folders = {
            "HOME": "home",
            "NGBKIT_STATE_DIR": "state",
            "NGBKIT_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
        }
        for variable, folder in folders.items():
            patch.setenv(variable, str(home / folder))
        for variable in ("NGBKIT_DEVICE", "NGBKIT_PATIENCE", "NGBKIT_MEASURE", "NGBKIT_RECORDED"):
            patch.delenv(variable, raising=False)
        _fill(home / "work")
        patch.chdir(home / "work")
        patch.setattr(subprocess, "Popen", _Refused)
        patch.setattr("ngbkit.cluster.engines.acquire", _refuse)
        patch.setattr("ngbkit.cluster.checkup.check", _refuse)
        with _limit_time():
            yield


class _Refused:
    """Takes the place of `subprocess.Popen`: no program is installed, and Python starts no second time."""

    def __init__(self, command: Any, *_: Any, **__: Any) -> None:
        program = command if isinstance(command, (str, os.PathLike)) else command[0]
        if program == sys.executable:
            _refuse()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(program))

    def __class_getitem__(cls, _: Any) -> type[_Refused]:
        return cls


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise DeviceError("a fuzzed command line starts no process.")


def _fill(folder: Path) -> None:
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "mlp.onnx").write_bytes(_build_network())
    for name in ("folder", "folder.nc", "folder.py", "folder.onnx"):
        (folder / name).mkdir()
    for name in ("loop", "loop.nc", "loop.py", "loop.onnx"):
        (folder / name).symlink_to(name)


_network: list[bytes] = []


def _build_network() -> bytes:
    if not _network:
        import onnx
        from onnx import TensorProto, helper

        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", values[:1], values[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        _network.append(model.SerializeToString())
    return _network[0]


@contextlib.contextmanager
def _limit_time() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"no end within {LIMIT_S} s")

    previous = signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def run(cases: int, seed: int) -> None:
    """Check that many command lines; print the number of each exit code."""
    counts: Counter[int] = Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(SETTINGS, max_examples=cases)
    @hypothesis.given(command_lines())
    def check(words: list[str]) -> None:
        counts[check_command_line(words)] += 1

    check()
    codes = ", ".join(f"{count} with {code}" for code, count in sorted(counts.items()))
    sys.stdout.write(f"command_lines: {sum(counts.values())} cases, seed {seed}: {codes}\n")

"""The standard streams: open, able to print any text, and with clear errors."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ngbkit import cli
from ngbkit.commands.streams import OutputError, hold_output

TABLE = "┏━┳━┓\n┃ µs ± │ 日 \udcff\n└─┴─┘\n"


def build_output(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("ascii", "+-+-+\n| us +- | \\u65e5 \\udcff\n+-+-+\n"),
        ("latin-1", "+-+-+\n| µs ± | \\u65e5 \\udcff\n+-+-+\n"),
        ("utf-8", TABLE.replace("\udcff", "\\udcff")),
    ],
)
def test_any_text_can_be_printed(encoding: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of tables become those of ASCII where the output has no others."""
    output = build_output(encoding)
    monkeypatch.setattr(sys, "stdout", output)
    with hold_output():
        sys.stdout.write(TABLE)

    assert text == output.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_what_was_printed_before_an_error_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Output that precedes an error is written."""
    with pytest.raises(ValueError, match="later"), hold_output():
        raise ValueError("later", sys.stdout.write("first\n"))

    assert "first\n" == capsys.readouterr().out


def test_a_full_disk_behind_the_output_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a full disk has its reason, and no text remains for Python's exit."""
    with open("/dev/full", "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(OutputError, match="No space left on device"), hold_output():
            sys.stdout.write("text")


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">/dev/full", cli.FAILED, "ngbkit: cannot write to the standard output: No space left on device."),
        (">&-", cli.FAILED, "ngbkit: cannot write to the standard output: Bad file descriptor."),
        ("<&- >&- 2>&-", cli.FAILED, ""),
        (">/dev/null 2>&-", cli.OK, ""),
        ("2>/dev/full", cli.OK, ""),
    ],
)
def test_a_program_without_streams_ends_in_order(redirection: str, code: int, message: str) -> None:
    """Closed or full ones cause no traceback, neither then nor at the end of Python."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = f"{sys.executable} -m ngbkit --version {redirection}"
    process = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)

    assert code == process.returncode
    assert process.stderr.startswith(message)
    assert len(process.stderr.splitlines()) == bool(message)


def test_an_error_of_the_system_ends_a_command_in_order(
    mlp_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is full when a run starts, for instance."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/full/file")

    monkeypatch.setattr("ngbkit.files.hash_file", fail)
    code = cli.main(["run", str(mlp_file), "--quiet"])

    assert cli.FAILED == code
    assert capsys.readouterr().err.startswith("ngbkit: /full/file cannot be used: there is no room on its disk.")

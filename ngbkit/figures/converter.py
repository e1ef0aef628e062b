"""vl-convert in a process of its own, which it aborts on some charts: a kernel with all its variables would end too."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ngbkit.errors import MissingDependencyError, NgbkitError, strip_controls

_CHILD = str(Path(__file__).with_name("converter_child.py"))
# The address of a picture within a picture, of a server or a file.
_REFERENCE = re.compile(r"""(<image\b[^>]*?\bhref=)(["'])(?!data:).*?\2""", re.DOTALL)
_lock = threading.Lock()
_processes: list[subprocess.Popen[bytes]] = []


class RenderError(NgbkitError):
    """A chart cannot be drawn; the process that draws ended, or says why."""


def convert(method: str, argument: Any, **options: Any) -> Any:
    """Call a function of vl-convert, such as ``vegalite_to_svg``; return its text or bytes.

    RenderError: it refuses the chart, or its process ended. MissingDependencyError: vl-convert is not installed.
    """
    if method.startswith("vegalite"):
        options["allowed_base_urls"] = []  # a chart of others requests nothing
    elif method.startswith("svg"):
        argument = _REFERENCE.sub(r"\1\2\2", argument)
    request = json.dumps([method, _clean(argument), options]).encode() + b"\n"
    with _lock:
        process = _start()
        try:
            assert process.stdin is not None
            process.stdin.write(request)
            process.stdin.flush()
            kind, size = _read(process, 1), int.from_bytes(_read(process, 8), "big")
            content = _read(process, size)
        except BaseException as error:
            has_ended = isinstance(error, (OSError, EOFError))
            # What is left of an answer would be taken for the next one.
            code = _stop(1.0 if has_ended else 0.0)
            if has_ended:
                name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                raise RenderError(
                    f"the process that draws charts ended ({name}) on this one. Its data are unharmed: display them as "
                    "a table, or draw fewer or other labels."
                ) from None
            raise
    if kind == b"e":
        raise RenderError(f"the chart cannot be drawn: {content.decode()}")
    return content.decode() if kind == b"s" else content


def start() -> None:
    """Start the process, so that the first chart does not wait for it."""
    with _lock:
        _start()


def _start() -> subprocess.Popen[bytes]:
    """Return the process that converts; start it if it does not run."""
    if _processes and _processes[-1].poll() is None:
        return _processes[-1]
    if find_spec("vl_convert") is None:
        raise MissingDependencyError("vl-convert-python", "notebook")
    _stop()
    _processes.append(
        subprocess.Popen(
            [sys.executable, _CHILD],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # an abort writes its stack there
            start_new_session=True,  # Ctrl-C is for the kernel
        )
    )
    return _processes[-1]


@atexit.register
def _stop(patience_s: float = 0.0) -> int:
    """End the process, if there is one, and return its exit code."""
    code = 0
    while _processes:
        process = _processes.pop()
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
        process.kill()
        code = process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(OSError):
                pipe.close()
    return code


def _read(process: subprocess.Popen[bytes], size: int) -> bytes:
    assert process.stdout is not None
    content = process.stdout.read(size)
    if len(content) < size:
        raise EOFError
    return content


def _clean(value: Any) -> Any:
    """Return a chart, or a picture, without the characters that XML has no sign for."""
    if isinstance(value, str):
        return strip_controls(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, (list, tuple)) else value

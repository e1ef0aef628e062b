"""The way to a device's machine: programs run here, or there over ssh, with what goes in and what comes out."""

from __future__ import annotations

import base64
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ngbkit.errors import DeviceError

# Nobody is there to answer a prompt; a link that is gone for a minute is gone.
SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
    *("-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "PermitLocalCommand=no"),
)
# What ssh itself exits with when it did not get as far as the program, or when the link broke.
SSH_FAILED = 255
# Over there: the program in $1 ends with its client, which sshd does not see to where there is no terminal; and what it
# ends with is never what ssh's own failures are told by.
_THERE = """\
(while kill -0 "$PPID"; do sleep 1; done; kill -KILL 0) </dev/null >/dev/null 2>&1 &
sh -c "$1"
code=$?
kill "$!"
[ "$code" -lt 255 ] || code=254
exit "$code"
"""
_HINTS = (
    (r"Could not resolve hostname", "give it a Host entry in ~/.ssh/config, or write its address as `host`"),
    (r"Host key verification failed", "connect once by hand (`ssh {host}`) and look at the key that it shows"),
    (r"Permission denied", "ngbkit answers no prompt: `ssh -o BatchMode=yes {host} true` must work (a key, an agent)"),
    (r"Connection refused", "no ssh server listens there: start it, or see to the Port in ~/.ssh/config"),
    (r"timed out|No route to host|unreachable", "is it switched on, and is this network allowed to reach it?"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Where programs of a device are run.

    Parameters
    ----------
    host
        What ssh calls the machine: an alias of ssh_config, or ``user@address``. None is this machine.
    setup
        Lines for ``sh``, such as ``module load cuda``, that come before each program.
    """

    host: str | None = None
    setup: str = ""

    def command(self, program: str) -> list[str]:
        """The words that run a line of ``sh`` over there, in the place of the shell that reads it."""
        script = f"{self.setup}\n{program}" if self.setup else program
        if not self.host:
            return ["sh", "-c", script]
        # A login shell of any kind reads the words first, and tcsh and fish have quotes of their own.
        sent = base64.b64encode(f"set -- {shlex.quote(script)}\n{_THERE}".encode()).decode()
        return [*SSH, "--", self.host, f"""exec sh -c 'eval "`echo {sent} | base64 -d`"'"""]

    def start(self, program: str, **pipes: Any) -> subprocess.Popen[bytes]:
        """Start a line of ``sh`` over there; `pipes` are those of `subprocess.Popen`."""
        try:
            # A Ctrl-C at the terminal is for the client, which ends what it has started in its own way.
            return subprocess.Popen(self.command(program), start_new_session=True, **pipes)
        except FileNotFoundError as error:
            raise DeviceError("there is no ssh on this machine: install OpenSSH's client.") from error

    def run(self, program: str, *, given: bytes | Path = b"", timeout_s: float = 60.0) -> str:
        """Run a line of ``sh`` over there to its end; what it printed.

        Parameters
        ----------
        program
            The line. Words in it that come from outside must be quoted (`shlex.quote`).
        given
            What it reads from its standard input: bytes, or a file.
        timeout_s
            How long it may take, in seconds.

        Raises
        ------
        DeviceError
            It cannot be reached, failed, or took longer; the message says what to do, or what the program said last.
        """
        if isinstance(given, Path):
            with open(given, "rb") as read:
                return self._finish(self._start(program, read), None, timeout_s)
        return self._finish(self._start(program, subprocess.PIPE), given, timeout_s)

    def _start(self, program: str, read: int | IO[bytes]) -> subprocess.Popen[bytes]:
        return self.start(program, stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def _finish(self, process: subprocess.Popen[bytes], given: bytes | None, timeout_s: float) -> str:
        with process:
            try:
                out, errors = process.communicate(given, timeout=timeout_s)
            except BaseException as error:
                # What it has started holds its pipes too.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise DeviceError(f"{self.where} did not answer within {timeout_s:g} s.") from None
                raise
        if process.returncode:
            raise self.explain(process.returncode, errors.decode(errors="replace") or out.decode(errors="replace"))
        return out.decode(errors="replace")

    def explain(self, code: int, said: str) -> DeviceError:
        """The error of a program that ended with that code and those last words."""
        last = "\n".join(said.strip().splitlines()[-20:]) or "it said nothing"
        if self.host and code == SSH_FAILED:
            for pattern, hint in _HINTS:
                if re.search(pattern, said):
                    return DeviceError(f"{self.where} cannot be reached ({last}): {hint.format(host=self.host)}.")
            return DeviceError(f"{self.where} cannot be reached: {last}.")
        return DeviceError(f"on {self.where} a program ended with {code}: {last}")

    @property
    def where(self) -> str:
        """The machine, in words."""
        return self.host or "this machine"


def words(program: Sequence[str]) -> str:
    """The words of a program as a line of ``sh``. A first word in the home folder (``~/…``) is found there."""
    first, *rest = program
    home = first.startswith("~/")
    command = f'"$HOME"/{shlex.quote(first[2:])}' if home else shlex.quote(first)
    return " ".join([command, *map(shlex.quote, rest)])

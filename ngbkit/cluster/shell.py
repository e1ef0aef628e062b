"""Programs on a device's machine: this one, or one behind ssh, with their input and output."""

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
from typing import Any

from ngbkit.errors import DeviceError

# No prompt can be answered; a link that is down for a minute is lost.
SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
    *("-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "PermitLocalCommand=no"),
)
# The exit code of ssh itself if it did not reach the program, or if the link broke.
SSH_FAILED = 255
# On the remote machine: ends the program in $1 with its client, which sshd does not do without a terminal, and never
# exits with ssh's own code.
_WRAPPER = """\
(while kill -0 "$PPID"; do sleep 1; done; kill -KILL 0) </dev/null >/dev/null 2>&1 &
sh -c "$1"
code=$?
kill "$!"
[ "$code" -lt 255 ] || code=254
exit "$code"
"""
_HINTS = (
    (r"Could not resolve hostname", "give it a Host entry in ~/.ssh/config, or write its address as `host`"),
    (r"Host key verification failed", "connect once by hand (`ssh {host}`) and check the key that it shows"),
    (r"Permission denied", "ngbkit answers no prompt: `ssh -o BatchMode=yes {host} true` must work (a key, an agent)"),
    (r"Connection refused", "no ssh server listens there: start it, or correct the Port in ~/.ssh/config"),
    (r"timed out|No route to host|unreachable", "is it switched on, and does this network allow access to it?"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Runs programs on a device's machine: `host` as ssh calls it, or this one; the lines of `setup` precede each."""

    host: str | None = None
    setup: str = ""

    def build_command(self, program: str) -> list[str]:
        """Build the command that runs a line of ``sh`` on the machine."""
        script = f"{self.setup}\n{program}" if self.setup else program
        if not self.host:
            return ["sh", "-c", script]
        # A login shell of any kind reads the command first, and tcsh and fish have their own quotes.
        encoded = base64.b64encode(f"set -- {shlex.quote(script)}\n{_WRAPPER}".encode()).decode()
        return [*SSH, "--", self.host, f"""exec sh -c 'eval "`echo {encoded} | base64 -d`"'"""]

    def start(self, program: str, **pipes: Any) -> subprocess.Popen[bytes]:
        """Start a line of ``sh`` on the machine; `pipes` go to `subprocess.Popen`."""
        try:
            # A Ctrl-C at the terminal is for the client, which ends its programs in its own way.
            return subprocess.Popen(self.build_command(program), start_new_session=True, **pipes)
        except FileNotFoundError as error:
            raise DeviceError("no ssh on this machine: install OpenSSH's client.") from error

    def run(self, program: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> str:
        """Run a line of ``sh`` on the machine with bytes as its input; return its output.

        The caller quotes foreign words (`shlex.quote`). A failure raises a DeviceError with a remedy or the last lines.
        """
        with self.start(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                out, errors = process.communicate(stdin, timeout=timeout_s)
            except BaseException as error:
                # Its children hold its pipes too.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise DeviceError(f"{self.machine} did not answer within {timeout_s:g} s.") from None
                raise
        if process.returncode:
            raise self.explain(process.returncode, errors.decode(errors="replace") or out.decode(errors="replace"))
        return out.decode(errors="replace")

    def explain(self, code: int, output: str) -> DeviceError:
        """Build the error for a program that ended with this code and this output."""
        last = "\n".join(output.strip().splitlines()[-20:]) or "no output"
        if self.host and code == SSH_FAILED:
            for pattern, hint in _HINTS:
                if re.search(pattern, output):
                    return DeviceError(f"cannot reach {self.machine} ({last}): {hint.format(host=self.host)}.")
            return DeviceError(f"cannot reach {self.machine}: {last}.")
        return DeviceError(f"a program on {self.machine} ended with {code}: {last}")

    @property
    def machine(self) -> str:
        """The name of the machine, for errors."""
        return self.host or "this machine"


def join_words(program: Sequence[str]) -> str:
    """Quote a program as a line of ``sh``; a first word ``~/…`` is in the home folder there."""
    first, *rest = program
    in_home = first.startswith("~/")
    command = f'"$HOME"/{shlex.quote(first[2:])}' if in_home else shlex.quote(first)
    return " ".join([command, *map(shlex.quote, rest)])

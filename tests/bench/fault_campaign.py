"""A campaign of `faults`: one run, its faults at random moments, and the damage."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fault_site import Client, Records, Site, kill, read_records

if TYPE_CHECKING:
    from hosts import Host

COMPILERS = ("identity", "onnxruntime", 'slow{"seconds":0.01}')
BATCH_SIZES = tuple(range(1, 11))
REPEATS = 5
# The pause after the previous fault or after the start of measuring, and the number of further records: one fault in
# four is injected at any moment, also while lost processes restart.
WAIT_S = (0.1, 3.5)
MORE_DONE = (0, 3, 3, 3)
# A client without a message for this long hangs.
HANGS_S = 240.0


COUNTS = ("faults", "runs", "resumes", "lost", "changed", "processes", "files", "wrong", "seconds")
"""The columns of the table, a row for each kind."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    `share` is its number among 200 faults; `inject` does the harm and returns whether it harmed anything, and is None
    if compilers of the sweep do it; `far` needs a device behind ssh; `fails` is the number of trials that one of
    its faults may fail: a fork server has the children of a group, with its anchor.
    """

    name: str
    share: int
    inject: Callable[[Campaign, Client], bool] | None
    far: bool = False
    fails: int = 0


@dataclass
class Campaign:
    """One run and its faults."""

    kind: Kind
    site: Site
    row: Counter[str]
    target: int
    rng: random.Random
    host: Host | None
    injected: int = 0
    run: str = ""
    trials: Sequence[str] = ()
    _records: dict[str, Records] = field(default_factory=lambda: {"client": {}, "device": {}})
    _changed: set[str] = field(default_factory=set)
    _next_done: int = 0

    def carry_out(self) -> None:
        self._next_done = self.rng.choice(MORE_DONE)
        client = self.site.start_client("start", str(self.site.network), json.dumps(self._sweep()))
        for _ in range(5 + 3 * self.target):
            self._inject(client)
            self.run, self.trials = client.run or self.run, client.trials or self.trials
            self.check_journals()
            self._check_end(client)
            if client.outcome.get("state") == "finished" or not self.run:
                break
            log(f"    resumes ({client.outcome.get('error', 'the client was killed')[:150]})")
            self.row["resumes"] += 1
            client = self.site.start_client("resume", self.run)
        else:
            self.report_wrong(f"the run {self.run} did not finish with the allowed number of clients")
        self._judge()
        self._clean_up()

    def _sweep(self) -> dict[str, object]:
        """The arguments of the sweep: one trial per batch size if memory runs out."""
        hungry = self.kind.inject is None
        return {
            "compilers": [*COMPILERS, *(["hungry"] if hungry else [])],
            "batch_sizes": BATCH_SIZES[: self.target] if hungry else BATCH_SIZES,
            "repeats": REPEATS,
            "devices": [self.site.label],
        }

    def _inject(self, client: Client) -> None:
        """Inject the remaining faults while that client lives."""
        while not client.ended:
            wait_s = self.rng.uniform(*WAIT_S) if client.measuring else 0.05
            client.wait(wait_s)
            if time.monotonic() - client.reported_at > HANGS_S:
                self.report_wrong(f"the client hung at {client.text!r}")
                kill(client.process)
                client.wait(10)
            due = client.measuring and client.done >= self._next_done and self.injected < self.target
            if due and not client.ended and self.kind.inject is not None:
                self.run, self.trials = client.run, client.trials
                self.check_journals()
                moment = client.text
                if self.kind.inject(self, client):
                    self.injected += 1
                    self._next_done = client.done + self.rng.choice(MORE_DONE)
                    client.reported_at = time.monotonic()
                    log(f"    {self.kind.name} {self.row['faults'] + self.injected}: {client.done} done, {moment}")

    def check_journals(self) -> None:
        """Compare the records of the journals with the earlier ones."""
        for owner, path in self.site.find_journals(self.run).items() if self.run else ():
            try:
                current = read_records(path)
            except sqlite3.DatabaseError as error:
                self.report_wrong(f"the {owner}'s journal cannot be read: {error}")
                continue
            earlier = self._records[owner]
            self._note_changed(owner, [key for key, record in earlier.items() if current.get(key) != record])
            self._records[owner] = {**earlier, **current}

    def report_wrong(self, text: str) -> None:
        self._count("wrong", text)

    def _count(self, name: str, *texts: str) -> None:
        """Count damage, and print a line of each."""
        self.row[name] += len(texts)
        for text in texts:
            log(f"    !! {name} in run {self.run}: {text}")

    def _note_changed(self, owner: str, keys: Sequence[str]) -> None:
        fresh = {f"{owner} {key}" for key in keys} - self._changed
        self._changed |= fresh
        self._count("changed", *fresh)

    def _check_end(self, client: Client) -> None:
        """Check that a client that was not killed ended in order, with one of ngbkit's errors as its reason."""
        code = client.process.returncode
        if code != -signal.SIGKILL and (code or not client.outcome):
            client_log = (self.site.folder / "client.log").read_text(errors="replace")
            self.report_wrong(f"the client ended with {code} and {client.outcome or 'no reason'}: {client_log[-1500:]}")

    def _judge(self) -> None:
        """Check that every trial has a record, equal on client and device, and that failures have a reason."""
        client, device = self._records["client"], self._records["device"]
        missing = [trial for trial in self.trials if trial not in client] if self.trials else ["all"]
        different = [key for key, (_, crc) in device.items() if client.get(key, ("", -1))[1] != crc]
        self._note_changed("client and device differ:", different)
        failed = {key: status for key, (status, _) in client.items() if key in self.trials and status != "ok"}
        if self.kind.inject is None:
            self.injected = sum(status == "out-of-memory" for status in failed.values())
            missing += ["hungry"] * (self.target - self.injected)
        elif not self.kind.fails:
            # A trial whose engine was killed twice or more during it is recorded as crashed.
            failed = {key: status for key, status in failed.items() if status != "crashed"}
        unexplained = len(failed) - self.kind.fails * self.injected
        self._count("lost", *missing, *[str(failed)] * max(0, unexplained))

    def _clean_up(self) -> None:
        # A far engine notices the end of a client within minutes, or at the next start.
        remaining = [] if self.kind.far else self.site.kill_remaining()
        for _ in range(2):
            touch = self.site.start_client("touch", self.site.label)
            touch.wait(HANGS_S)
            if touch.outcome.get("state") != "finished":
                self.report_wrong(f"the next start failed: {touch.outcome}")
            self._check_end(touch)
            remaining += self.site.kill_remaining()
            files = self.site.list_remaining_files()
            if not any(path.parent.name == "engines" and not (path / "about.json").exists() for path in files):
                break
            time.sleep(61)  # a new folder is kept for a minute, since another process may be creating it
        self._count("processes", *(text[:200] for text in remaining))
        self._count("files", *map(str, files))


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

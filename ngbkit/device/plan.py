"""The requests of an engine: run a sweep's trials on this device, and hand over the records of its journal.

The client calls `hello`, `describe`, `vitals`, `run`, `serve` and `collect` by reference, with one JSON string, and
receives one, so that no function and no object crosses between Python versions::

    view.apply_async(ipp.Reference("__import__('ngbkit.device.plan',fromlist=['_']).run"), spec_json)

A device without an engine is a command: ``python -m ngbkit.device.plan SPEC`` is an index of a job array, and ``--call
collect`` answers a request of the standard input (`ngbkit.device.array`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngbkit import files, options
from ngbkit.device import array, contents, faults
from ngbkit.device.description import describe_device, list_variables, load_peaks
from ngbkit.device.environment_variables import digest_variables
from ngbkit.device.groups.bench import Bench
from ngbkit.device.interrupt import Interrupt
from ngbkit.device.isolation import server_pool
from ngbkit.device.isolation.server_pool import choose_threads
from ngbkit.device.isolation.servers import ServerEndedError
from ngbkit.device.lock import acquire_cores, acquire_lock
from ngbkit.device.process_lifetime import announce_end, end_group
from ngbkit.device.serving.load import Load
from ngbkit.device.serving.serving_bench import ServingBench
from ngbkit.device.spec import EVENT_MIME, FORMAT, Spec, answer_errors
from ngbkit.errors import NgbkitError
from ngbkit.files import Store, read_chunks
from ngbkit.hardware import conditions, environment
from ngbkit.hardware.host import HostMonitor
from ngbkit.sweep import records as record_format
from ngbkit.sweep.journal import Journal

Publish = Callable[[dict[str, Any]], None]
# How long other work is observed for the vitals, and how much of a log they include.
_OBSERVATION_S, _LOG_BYTES = 0.2, 4000
# After the signal that ends a job, its plan has this long to take back what is in flight.
_GRACE_S = 5.0


@answer_errors
def hello(spec_json: str = "{}") -> str:
    """Report this device, as the handshake before a plan; the reply's formats must be the client's own."""
    del spec_json
    reply = {
        "format": FORMAT,
        "record_format": record_format.FORMAT,
        "state_dir": str(options.get_state_dir()),
        "pid": os.getpid(),
    }
    return json.dumps({**reply, "environment": environment.describe()})


@answer_errors
def describe(spec_json: str) -> str:
    """Report the device as a plan of a `Spec` would find it now, with digests of the variables of its children."""
    spec = Spec.from_json(spec_json)
    variables = digest_variables(list_variables(spec))
    return json.dumps({"description": {**describe_device(spec, choose_threads(spec), 0.0), "variables": variables}})


@answer_errors
def vitals(spec_json: str = "{}") -> str:
    """Report the device's conditions now (`ngbkit.hardware.conditions.observe`), and the end of this engine's log."""
    del spec_json
    return json.dumps({"looked": conditions.observe(_OBSERVATION_S), "log": _read_end_of_log()})


@answer_errors
def warm(spec_json: str) -> str:
    """Start the servers that a `Spec`, in JSON as for `run`, will need, and return when all are ready."""
    for server in server_pool.start_servers(Spec.from_json(spec_json)):
        with contextlib.suppress(ServerEndedError):  # a run tries again, and records what fails
            server.wait_until_ready()
    return "{}"


@answer_errors
def run(spec_json: str) -> str:
    """Run the trials of a `Spec` that have no record in this device's journal.

    The reply's ``state`` is ``"finished"``, ``"stopped"`` or ``"error"``, with ``error`` and ``kind`` of the exception.
    """
    return json.dumps({"state": carry_out(Spec.from_json(spec_json), _number_events(_find_publisher()))})


@answer_errors
def serve(request_json: str) -> str:
    """Serve requests by the one network and compiler of a ``spec`` as a ``load`` says, both in JSON.

    The reply's ``state`` is that of `run`; each test is an event.
    """
    request = json.loads(request_json)
    spec, publish = Spec.from_json(request["spec"]), _number_events(_find_publisher())
    folder = files.make_scratch(spec.state_dir / options.LAYOUT.scratch)
    try:
        # The journal is only the bench's, and is thrown away.
        with Interrupt() as interrupt, Journal(folder / "journal.sqlite") as journal:
            bench = ServingBench(spec=spec, journal=journal, interrupt=interrupt.descriptor, publish=publish)
            with _occupy(spec, bench, interrupt):
                bench.serve(Load.from_json(request["load"]), folder)
        return json.dumps({"state": "finished"})
    except InterruptedError:
        return json.dumps({"state": "stopped"})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def carry_out(spec: Spec, publish: Publish, index: int | None = None) -> str:
    """Carry out a plan in this process, publishing every event; return ``"finished"`` or ``"stopped"``."""
    path = locate_journal(spec.state_dir, spec.device, spec.run_id, index)
    # The interrupt first: without it, a SIGINT could leave a journal without tables, and its fence locked.
    with Interrupt() as interrupt, Journal(path) as journal:
        if journal.salvaged is not None:
            publish(
                {"kind": "salvaged", "device": spec.device, "records": journal.salvaged, "journal": str(journal.path)}
            )
        if (spec.retry or spec.retry_ids) and journal.notes("retried").get("last") != spec.retry_id:
            statuses = journal.statuses()
            journal.forget(
                [name for name, status in statuses.items() if status in spec.retry or name in spec.retry_ids]
            )
            journal.note("retried", "last", spec.retry_id)
        bench = Bench(spec=spec, journal=journal, interrupt=interrupt.descriptor, publish=publish)
        try:
            with _occupy(spec, bench, interrupt):
                _measure(spec, bench)
        except InterruptedError:
            return "stopped"
    return "finished"


@contextlib.contextmanager
def _occupy(spec: Spec, bench: Bench, interrupt: Interrupt) -> Iterator[None]:
    """Wait until neither another plan of this device nor one on its cores runs, and keep others out for the block."""
    lock, folder = locate_lock(spec.state_dir, spec.place), spec.state_dir / options.LAYOUT.cores
    cores, owner = environment.list_usable_cores(), f"{spec.run_id} on {spec.place}"

    def report_holder(holder: str) -> None:
        bench.report_wait(f"is in use by {holder}; waiting until it is free")

    def report_neighbour(holder: str) -> None:
        bench.report_wait(f"shares cores with {holder}; waiting until that has ended")

    with (
        acquire_lock(lock, spec.run_id, interrupt.descriptor, report_holder),
        acquire_cores(folder, cores, owner, interrupt.descriptor, report_neighbour),
    ):
        yield


def _measure(spec: Spec, bench: Bench) -> None:
    if spec.only_prepares:
        bench.prepare_all()
        return
    bench.install_releases()
    description = {
        **describe_device(spec, bench.threads, _OBSERVATION_S),
        "peaks": {**load_peaks(spec, bench.threads), "fault_s": faults.load_or_measure(spec.state_dir)},
        "releases": bench.describe_releases(),
    }
    bench.note("environment", spec.device, description)
    bench.warm_servers()
    with HostMonitor.start(spec.state_dir / options.LAYOUT.hosts, environment.list_usable_cores()) as bench.host:
        for bundle in spec.sweep.bundles(spec.device):
            bench.measure(bundle)
            bench.host.learn()
        states = bench.host.describe()
    after = {"releases": bench.describe_releases(), "conditions_after": conditions.observe(), "states": states}
    bench.note("environment", spec.device, {**description, **after})


@answer_errors
def identify(spec_json: str) -> str:
    """Report the content of each network of a `Spec`, without building any: see `contents.find_contents`."""
    return json.dumps({"contents": contents.find_contents(Spec.from_json(spec_json))})


@answer_errors
def collect(spec_json: str) -> str:
    """Collect at most ``most`` records of a run that the client does not ``have``, by trial id.

    The reply has ``records``, ``more``, true if others remain, and ``facts`` and ``environment`` of the run. A journal
    that has not granted the request ``retry_id`` yet is left out: what it has is to be measured again.
    """
    data = json.loads(spec_json)
    have, most = set(data["have"]), int(data["most"])
    records: list[dict[str, Any]] = []
    notes: dict[str, dict[str, Any]] = {"facts": {}, "environment": {}}
    more = False
    for path in list_journals(Path(data["state_dir"]), data["device"], data["run_id"]):
        with Journal(path, writable=False) as journal:
            retry_id = data.get("retry_id", "")
            if retry_id and journal.notes("retried").get("last") != retry_id:
                continue
            missing = [trial_id for trial_id in journal.statuses() if trial_id not in have]
            selected = set(missing[: most - len(records)])
            records += [record_format.to_json(record) for record in journal.records(selected)]
            have |= selected
            more = more or len(missing) > len(selected)
            for kind, values in notes.items():
                values |= {key: value for key, value in journal.notes(kind).items() if key not in values}
    return json.dumps({"records": records, "more": more, **notes})


@answer_errors
def missing(spec_json: str) -> str:
    """Report which of the ``digests`` have no artifact in ``state_dir``, as ``missing``."""
    data = json.loads(spec_json)
    store = Store(Path(data["state_dir"]) / options.LAYOUT.artifacts)
    return json.dumps({"missing": [digest for digest in data["digests"] if not store.contains(digest)]})


@answer_errors
def receive(spec_json: str, chunk: bytes) -> str:
    """Append a chunk to an incoming artifact, number 0 first: ``state_dir``, ``digest``, ``number``."""
    data = json.loads(spec_json)
    path = _locate_incoming(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb" if data["number"] == 0 else "ab") as file:
        file.write(chunk)
    return "{}"


@answer_errors
def received(spec_json: str) -> str:
    """Store a complete incoming artifact, if it has the announced hash."""
    data = json.loads(spec_json)
    path = _locate_incoming(data)
    with open(path, "rb") as file:
        store = Store(Path(data["state_dir"]) / options.LAYOUT.artifacts)
        store.receive(data["digest"], read_chunks(file))
    path.unlink()
    with contextlib.suppress(OSError):  # another artifact is incoming
        path.parent.rmdir()
    return "{}"


def _locate_incoming(data: dict[str, Any]) -> Path:
    return Store(Path(data["state_dir"]) / options.LAYOUT.incoming).locate(data["digest"])


def locate_journal(state_dir: Path, device: str, run_id: str, index: int | None = None) -> Path:
    """Locate a device's journal of a run, or the journal of an index of a job array."""
    folder = state_dir / options.LAYOUT.devices / device
    return folder / f"{run_id}.sqlite" if index is None else folder / run_id / f"{index}.sqlite"


def list_journals(state_dir: Path, device: str, run_id: str) -> list[Path]:
    """List the journals of a run that a device has: its own, and one of each index of a job array."""
    journal = locate_journal(state_dir, device, run_id)
    parts = sorted(journal.with_suffix("").glob("*.sqlite"), key=lambda path: (len(path.stem), path.stem))
    return [path for path in (journal, *parts) if path.exists()]


def locate_lock(state_dir: Path, device: str) -> Path:
    """Locate the lock of a device."""
    return state_dir / options.LAYOUT.devices / device / "lock"


def _find_publisher() -> Publish:
    """Find the publisher of events: as display data of the engine's kernel; outside a kernel, events are dropped."""
    try:
        from ipykernel.zmqshell import ZMQInteractiveShell
    except ImportError:
        return _drop
    shell = sys.modules["IPython"].get_ipython()  # the kernel has imported it
    if not isinstance(shell, ZMQInteractiveShell):  # none, or that of a terminal
        return _drop
    display = shell.display_pub
    # As text, since a kernel writes JSON without NaN, and stumbles over half of a surrogate pair.
    return lambda event: display.publish({EVENT_MIME: json.dumps(event)})


def _drop(event: dict[str, Any]) -> None:
    del event


def _number_events(publish: Publish) -> Publish:
    count = 0

    def publish_numbered(event: dict[str, Any]) -> None:
        nonlocal count
        publish({"n": count, **event})
        count += 1

    return publish_numbered


def _read_end_of_log() -> str:
    """Read the end of this engine's output; empty if it does not go to a file."""
    try:
        with Path("/proc/self/fd/2").readlink().open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
            return log.read().decode(errors="replace")
    except OSError:  # a terminal, a pipe, a deleted file
        return ""


_REQUESTS: Mapping[str, Callable[..., str]] = {
    function.__name__: function for function in (hello, missing, receive, received, collect)
}


def main(arguments: Sequence[str]) -> None:
    """Measure the share of an index of a job array, or answer a request, as one command line says."""
    parser = argparse.ArgumentParser(prog="python -m ngbkit.device.plan", description="measure without an engine")
    parser.add_argument("spec", type=Path, nargs="?", metavar="SPEC", help="measure the share of one index")
    parser.add_argument("--index", type=int, help=f"the index (default: ${', $'.join(array.VARIABLES)})")
    parser.add_argument("--call", choices=sorted(_REQUESTS), help="answer a request of the standard input")
    chosen = parser.parse_args(arguments)
    os.umask(0o077)
    if chosen.call is not None:
        # Its JSON is the first line; its bytes, if it has some, are the rest.
        request, chunk = sys.stdin.buffer.readline().decode(), sys.stdin.buffer.read()
        _print(_REQUESTS[chosen.call](request, *([chunk] if chosen.call == "receive" else [])))
        return
    index = chosen.index if chosen.index is not None else array.read_index()
    if chosen.spec is None or index is None:
        parser.error(f"expected SPEC and an index: --index, or one of {', '.join(array.VARIABLES)} of a batch system")
    signal.signal(signal.SIGTERM, _stop)
    try:
        with files.explain_errors():
            state = carry_out(array.prepare(chosen.spec, index), _print_event, index)
    except NgbkitError as error:
        sys.exit(f"index {index}: {error}")
    _print(f"index {index} has {state}")


def _print_event(event: dict[str, Any]) -> None:
    """Print the progress to the log of the index."""
    if event.get("kind") in ("stage", "salvaged") or event.get("done") == 0:
        _print(event.get("text") or json.dumps(event))


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _stop(*_: object) -> None:
    """Stop as by an interrupt, which takes back what is in flight: the batch system may signal children as well."""
    announce_end()
    timer = threading.Timer(_GRACE_S, end_group)
    timer.daemon = True
    timer.start()
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    main(sys.argv[1:])

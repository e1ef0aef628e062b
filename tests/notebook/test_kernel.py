"""The magics in a real kernel, driven as a notebook drives it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
from patience import wait_until
from state import keep_state_dir
from watching import Processes

from ngbkit import runs
from ngbkit.cluster import engines

Kernel = tuple[KernelManager, BlockingKernelClient]

# A state folder of its own: no engine of another module is among the processes that these tests count.
state_dir = pytest.fixture(autouse=True, scope="module")(keep_state_dir)


@pytest.fixture
def kernel(state_dir: Path, tmp_path: Path) -> Iterator[Kernel]:
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "kernel"))
    manager.start_kernel(env={**os.environ, "NGBKIT_STATE_DIR": str(state_dir)}, cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready()
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def messages(client: BlockingKernelClient, cell: str) -> Iterator[dict[str, Any]]:
    """Run a cell; yield the messages that the kernel publishes, and its reply at the end."""
    request = client.execute(cell)
    while True:
        message = client.get_iopub_msg()
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
        yield message
    # On a busy machine the kernel still answers earlier requests of `wait_for_ready`.
    while (reply := client.get_shell_msg())["parent_header"].get("msg_id") != request:
        continue
    yield reply


def list_outputs(published: list[dict[str, Any]]) -> list[str]:
    """List whether each output has a table, or else its beginning, as it is after its updates."""
    outputs: dict[str, str] = {}
    for message in published:
        if message["msg_type"] in ("display_data", "update_display_data"):
            key = message["content"]["transient"].get("display_id", f"{len(outputs)}")
            page = message["content"]["data"]["text/html"]
            outputs[key] = "<table" if "<table" in page else page[:6]
    return list(outputs.values())


def test_results_are_an_output_of_their_own(kernel: Kernel, mlp_file: Path) -> None:
    """A front end without updates shows them too, and one with updates shows one table and no progress any more."""
    _, client = kernel
    execute(client, "%load_ext ngbkit")
    published = list(messages(client, f"%ngbench {mlp_file} -c identity -b 1 -r 5 --threads 1 -o ds"))
    first = [message["content"]["data"]["text/plain"] for message in published if message["msg_type"] == "display_data"]

    assert [True, False] == [text.startswith("0 of 1") for text in first]
    assert "throughput (samples/s)" in first[1]
    assert ["", "<table"] == list_outputs(published)


def test_every_error_is_an_output(kernel: Kernel, tmp_path: Path) -> None:
    """Papermill, nbconvert and logs thus have its sentence, also of an error of the system."""
    _, client = kernel
    (tmp_path / "file").touch()
    execute(client, f"%load_ext ngbkit\n%env NGBKIT_STATE_DIR={tmp_path / 'file' / 'state'}")
    usage, system = (
        [message["content"] for message in messages(client, cell) if message["msg_type"] == "error"]
        for cell in ("%ngbench resnet18 -c onnxrntime", "%ngbench blocks.conv --factor depth=1 --factor width=8")
    )

    assert [
        "UnknownNameError: unknown compiler 'onnxrntime'. Did you mean onnxruntime? `%ngcompilers` lists them all."
    ] == (usage[0]["traceback"])
    assert "`%ngcompilers` lists them all." in usage[0]["evalue"]
    assert [1, True] == [len(system[0]["traceback"]), f"{tmp_path / 'file'} cannot be used" in system[0]["evalue"]]


@pytest.mark.guard
def test_interrupting_a_cell_stops_the_run_and_keeps_what_was_measured(kernel: Kernel, mlp_file: Path) -> None:
    """The stop button, also pressed thrice, leaves one table, and an error reply, so that "Run All" ends."""
    manager, client = kernel
    list(messages(client, "%load_ext ngbkit"))
    cell = f"%ngbench {mlp_file} -c identity,onnxruntime -b 1:200 -r 50 -o ds"
    replies: list[dict[str, Any]] = []
    pressed = False
    for message in messages(client, cell):
        replies.append(message)
        text = str(message["content"].get("data", {}).get("text/plain", ""))
        if not pressed and message["msg_type"] == "update_display_data" and not text.startswith("0 of"):
            for _ in range(3):
                manager.interrupt_kernel()
            pressed = True
    reply = replies[-1]["content"]
    displays = [message for message in replies if "display_data" in message["msg_type"]]
    printed = list(messages(client, "print(*sorted(set(ds['status'].values.ravel())), hasattr(ds, 'ngb'))"))

    assert pressed
    assert ["", "<table"] == list_outputs(displays)
    assert ("error", "RunInterruptedError") == (reply["status"], reply["ename"])
    assert "%ngruns --resume" in reply["traceback"][-1]
    assert "ok pending True\n" == "".join(
        message["content"]["text"] for message in printed if message["msg_type"] == "stream"
    )


def execute(client: BlockingKernelClient, cell: str) -> str:
    """Run a cell that must succeed; return the text that it printed and displayed."""
    *published, reply = list(messages(client, cell))
    assert reply["content"]["status"] == "ok", reply["content"]
    contents = [message["content"] for message in published]
    return "\n".join(content.get("text", "") or content.get("data", {}).get("text/plain", "") for content in contents)


def test_a_killed_kernel_leaves_no_engine_and_its_run_resumes(
    kernel: Kernel, mlp_file: Path, processes: Processes
) -> None:
    """`kill -9` during a sweep leaves no process and loses only the trials in flight; no other runs again."""
    manager, client = kernel
    execute(client, "%load_ext ngbkit")
    slow = 'slow{"seconds":0.02}'
    execute(client, f"run = %ngbench {mlp_file} -c identity,{slow} -b 1,2,3 -r 100 --threads 1 --background")
    wait_until(lambda: "True" in execute(client, "print('measuring mlp batch 2' in run.progress.text)"))
    run_id = execute(client, "print(run.id)").strip()
    pid = manager.provisioner.pid
    engine_processes = processes(but=pid)
    psutil.Process(pid).kill()
    wait_until(lambda: not processes(but=pid), seconds=15)
    run = runs.resume(run_id)
    done = run.progress.done
    run.result()
    engines.close()

    assert len(engine_processes) >= 4
    assert done >= 2
    assert {"ok": 6} == dict(run.progress.statuses)


def test_a_kernel_that_shuts_down_leaves_no_process(
    kernel: Kernel, mlp_file: Path, state_dir: Path, processes: Processes
) -> None:
    """The engines end with the kernel, and their connection files are removed."""
    manager, client = kernel
    execute(client, "%load_ext ngbkit")
    table = execute(client, f"%ngbench {mlp_file} -c identity,onnxruntime -b 1 -r 5 --threads 1 -o ds")
    bound = execute(client, "print(ds.ngb.speedup().sizes)")
    pid = manager.provisioner.pid
    manager.shutdown_kernel()
    wait_until(lambda: not processes(but=pid), seconds=15)

    assert "throughput" in table
    assert "'compiler': 2" in bound
    assert [] == list((state_dir / "clusters").iterdir())

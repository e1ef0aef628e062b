"""An ipyparallel client that takes text from an engine, and nothing else.

ipyparallel unpickles what an engine returns, which lets the engine run code here, and a reply that cannot be unpickled
is waited for without end. Here a reply is a text of bounded size or an error that says what came in its place; of what
an engine publishes only ngbkit's own events are kept, and only for calls that this client made.
"""

from __future__ import annotations

import io
import pickle
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import ipyparallel
from ipyparallel.client.client import unpack_message

from ngbkit.device.spec import EVENT_MIME

# The largest honest reply holds the records of one part of a journal: see `ngbkit.device.plan.collect`.
MOST_REPLY_BYTES = 64 << 20
MOST_EVENT_BYTES = 32 << 20
# What an error from an engine is called where it is this module's own.
REFUSED = "ReplyRefusedError"
_MOST_TEXT = 20_000

Events = queue.SimpleQueue[dict[str, Any]]


class GuardedClient(ipyparallel.Client):  # type: ignore[misc]
    """A client whose results are text. The parameters are those of `ipyparallel.Client`."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._ngbkit_events: dict[str, Events] = {}
        self._ngbkit_lock = threading.Lock()
        super().__init__(*arguments, **settings)

    def events(self, msg_id: str) -> Events:
        """Where the events of that call arrive, those that came before anyone asked among them."""
        with self._ngbkit_lock:
            return self._ngbkit_events.setdefault(msg_id, queue.SimpleQueue())

    def forget(self, msg_id: str) -> None:
        """Let go of all that is kept of a call that has been answered."""
        with self._ngbkit_lock:
            self._ngbkit_events.pop(msg_id, None)
        self.results.pop(msg_id, None)
        self.metadata.pop(msg_id, None)
        self._futures.pop(msg_id, None)
        self._output_futures.pop(msg_id, None)
        if msg_id in self.history:
            self.history.remove(msg_id)

    def _handle_apply_reply(self, msg: dict[str, Any]) -> None:
        msg_id = str(msg["parent_header"].get("msg_id", ""))
        if msg_id not in self.outstanding:
            return  # late, or never asked for; ipyparallel would print it
        try:
            msg["content"] = _checked(msg["content"], msg.get("buffers", ()))
            super()._handle_apply_reply(msg)
        except Exception as error:  # noqa: BLE001  whatever a reply is made of, somebody waits for it
            self.outstanding.discard(msg_id)
            future = self._futures.get(msg_id)
            if future is not None and not future.done():
                refused = ipyparallel.error.RemoteError(REFUSED, f"its reply is not one of ngbkit's: {error!r}", "", {})
                self.results[msg_id] = refused
                future.set_result(refused)

    @unpack_message  # type: ignore[untyped-decorator, unused-ignore]
    def _dispatch_iopub(self, msg: dict[str, Any]) -> None:
        parent, content = msg["parent_header"], msg["content"]
        if not parent or parent.get("session") != self.session.session:
            return
        msg_id = str(parent.get("msg_id", ""))
        kind = msg["header"]["msg_type"]
        if kind == "display_data":
            data = content.get("data")
            event = data.get(EVENT_MIME) if isinstance(data, dict) else None
            if isinstance(event, dict) and (msg_id in self.outstanding or msg_id in self._ngbkit_events):
                self.events(msg_id).put(event)
        elif kind == "status" and content.get("execution_state") == "idle":
            future = self._output_futures.get(msg_id)
            if future is not None and not future.done():
                future.set_result(None)


class _Plain(pickle.Unpickler):
    """Reads a pickle of plain values; one that names a class or a function is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds {module}.{name}, not a text")


def _checked(content: Mapping[str, Any], buffers: Sequence[Any]) -> dict[str, Any]:
    """The content of a reply, or that of an error in the place of a reply that is no text of ours."""
    if content.get("status") != "ok":
        return _error(content)
    try:
        _check_text(buffers)
    except Exception as error:  # noqa: BLE001  a hostile pickle may raise anything
        return _error({"status": "error", "ename": REFUSED, "evalue": f"its reply was refused: {error}"})
    return dict(content)


def _check_text(buffers: Sequence[Any]) -> None:
    sizes = [memoryview(part).nbytes for part in buffers]
    if sum(sizes) > MOST_REPLY_BYTES:
        raise ValueError(f"it has {sum(sizes):,} bytes, and at most {MOST_REPLY_BYTES:,} are taken")
    if len(sizes) != 1:
        raise ValueError(f"it has {len(sizes)} parts in the place of one")
    value = _Plain(io.BytesIO(bytes(buffers[0]))).load()
    if type(value) is not str:
        raise ValueError(f"it is a {type(value).__name__}, not a text")


def _error(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an error with all that ipyparallel looks for, as plain text of bounded length."""
    traceback = content.get("traceback")
    info = content.get("engine_info")
    return {
        "status": content.get("status") if content.get("status") in ("error", "aborted") else "error",
        "ename": str(content.get("ename", ""))[:_MOST_TEXT],
        "evalue": str(content.get("evalue", ""))[:_MOST_TEXT],
        "traceback": [str(line)[:_MOST_TEXT] for line in traceback[-50:]] if isinstance(traceback, list) else [],
        "engine_info": info if isinstance(info, dict) else {},
    }

"""An ipyparallel client that accepts only text from an engine.

ipyparallel unpickles an engine's replies, so an engine could run code here, and a reply that cannot be unpickled would
never arrive. This client accepts a text of bounded size, and turns any other reply into an error that describes it. It
keeps only ngbkit's own events, and only for its own calls.
"""

from __future__ import annotations

import io
import os
import pickle
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import ipyparallel
from ipyparallel.client.client import unpack_message

from ngbkit.cluster.replies import MAX_MESSAGE_BYTES
from ngbkit.device.spec import EVENT_MIME

# The name of the error in the place of a refused reply.
REFUSED = "ReplyRefusedError"
_MAX_TEXT = 20_000

Events = queue.SimpleQueue[str]
"""The texts of events; one that is too long has lost its end, and is refused where it is parsed."""


class GuardedClient(ipyparallel.Client):  # type: ignore[misc]
    """A client whose results are text. It takes the parameters of `ipyparallel.Client`."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._ngbkit_events: dict[str, Events] = {}
        self._ngbkit_lock = threading.Lock()
        # Of connections that are given, it reads no profile; a user without a home has none, and IPython warns.
        super().__init__(*arguments, **{"ipython_dir": os.devnull, **settings})

    def activate(self, targets: Any = "all", suffix: str = "") -> None:
        """Bind no magics: ipyparallel's first client in IPython binds ``%px``, which is for the user's own clusters."""

    def events(self, msg_id: str) -> Events:
        """Return the queue of a call's events, including those that have already arrived."""
        with self._ngbkit_lock:
            return self._ngbkit_events.setdefault(msg_id, queue.SimpleQueue())

    def forget(self, msg_id: str) -> None:
        """Forget a call and its events; a late reply is ignored."""
        with self._ngbkit_lock:
            self._ngbkit_events.pop(msg_id, None)
        for msg_ids in (self.outstanding, *self._outstanding_dict.values()):
            msg_ids.discard(msg_id)
        self.results.pop(msg_id, None)
        self.metadata.pop(msg_id, None)
        self._futures.pop(msg_id, None)
        self._output_futures.pop(msg_id, None)
        if msg_id in self.history:
            self.history.remove(msg_id)

    def _handle_apply_reply(self, msg: dict[str, Any]) -> None:
        msg_id = str(msg["parent_header"].get("msg_id", ""))
        if msg_id not in self.outstanding:
            return  # late or unrequested; ipyparallel would print it
        try:
            msg["content"] = _build_content(msg["content"], msg.get("buffers", ()))
            super()._handle_apply_reply(msg)
        except Exception as error:  # noqa: BLE001  the caller waits for any reply
            self.outstanding.discard(msg_id)
            future = self._futures.get(msg_id)
            if future is not None and not future.done():
                refused = ipyparallel.error.RemoteError(REFUSED, f"invalid reply: {error!r}", "", {})
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
            if isinstance(event, str) and (msg_id in self.outstanding or msg_id in self._ngbkit_events):
                self.events(msg_id).put(event[: MAX_MESSAGE_BYTES + 1])
        elif kind == "status" and content.get("execution_state") == "idle":
            future = self._output_futures.get(msg_id)
            if future is not None and not future.done():
                future.set_result(None)


class _Plain(pickle.Unpickler):
    """Unpickles plain values; refuses a class or a function before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"got {module}.{name}; expected a text")


def _build_content(content: Mapping[str, Any], buffers: Sequence[Any]) -> dict[str, Any]:
    """Build the content of a reply, or of an error if the reply is not a text."""
    if content.get("status") != "ok":
        return _build_error(content)
    try:
        _check_text(buffers)
    except Exception as error:  # noqa: BLE001  a hostile pickle may raise anything
        return _build_error({"status": "error", "ename": REFUSED, "evalue": f"invalid reply: {error}"})
    return dict(content)


def _check_text(buffers: Sequence[Any]) -> None:
    sizes = [memoryview(part).nbytes for part in buffers]
    if sum(sizes) > MAX_MESSAGE_BYTES:
        raise ValueError(f"got {sum(sizes):,} bytes; expected at most {MAX_MESSAGE_BYTES:,}")
    if len(sizes) != 1:
        raise ValueError(f"got {len(sizes)} parts; expected one")
    value = _Plain(io.BytesIO(bytes(buffers[0]))).load()
    if type(value) is not str:
        raise ValueError(f"got a {type(value).__name__}; expected a text")


def _build_error(content: Mapping[str, Any]) -> dict[str, Any]:
    """Build the content of an error with all fields that ipyparallel reads, as plain text of bounded length."""
    traceback = content.get("traceback")
    info = content.get("engine_info")
    return {
        "status": content.get("status") if content.get("status") in ("error", "aborted") else "error",
        "ename": str(content.get("ename", ""))[:_MAX_TEXT],
        "evalue": str(content.get("evalue", ""))[:_MAX_TEXT],
        "traceback": [str(line)[:_MAX_TEXT] for line in traceback[-50:]] if isinstance(traceback, list) else [],
        "engine_info": info if isinstance(info, dict) else {},
    }

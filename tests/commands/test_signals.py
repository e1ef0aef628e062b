"""The signals that end a command."""

from __future__ import annotations

import signal

import pytest

from ngbkit.commands import signals
from ngbkit.commands.signals import ignore_interrupts, stop_in_order


@pytest.fixture(autouse=True)
def _default_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handler of pytest or of a plugin."""
    assert signal.default_int_handler == signal.getsignal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU])
def test_signals_stop_a_command_alike(number: signal.Signals) -> None:
    """Each signal raises one KeyboardInterrupt, and echoes within a second are ignored."""
    with stop_in_order() as handler:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(number)
        signal.raise_signal(number)

    assert number == handler.number


def test_later_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C interrupts again, a second SIGTERM ends the process, and a later SIGHUP is ignored."""
    now_s = 1.0
    monkeypatch.setattr(signals.time, "monotonic", lambda: now_s)
    raised: list[int] = []
    with stop_in_order() as handler:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        now_s = 3.0
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(signals.signal, "raise_signal", raised.append)
        with pytest.raises(KeyboardInterrupt):
            handler(signal.SIGTERM, None)

        assert [signal.SIGTERM] == raised
        assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)


def test_ignored_signals_stay_ignored() -> None:
    """A signal that was ignored stays ignored, and handlers are restored at the end."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_in_order(), stop_in_order() as inner:
            signal.raise_signal(signal.SIGHUP)

            assert inner is not signal.getsignal(signal.SIGTERM)
        assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
        assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_interrupts_are_ignored_while_results_are_saved() -> None:
    """Interrupts are ignored while results are saved, and not afterwards."""
    with ignore_interrupts():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

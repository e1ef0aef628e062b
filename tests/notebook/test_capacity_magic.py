"""``%ngcapacity`` in a real shell."""

from __future__ import annotations

import pytest
from drawn import measured, network, record_tests
from IPython.core.interactiveshell import InteractiveShell

from ngbkit.errors import UsageError
from ngbkit.runs import capacity


def test_it_shows_the_capacities_of_a_variable(shell: InteractiveShell) -> None:
    """The value of the magic is the table, which a later cell can plot."""
    shell.user_ns["ds"] = measured(network("net"), batch_sizes=[1])
    record_tests(shell.user_ns["ds"])

    capacities = shell.run_line_magic("ngcapacity", "ds --deadline 100ms -c openvino")

    assert ["openvino"] == capacities.frame["compiler"].tolist()
    assert "p99 within 100 ms" in capacities._repr_html_()


def test_an_error_is_one_line(shell: InteractiveShell) -> None:
    """The error of the magic is one line with the valid values."""
    shell.user_ns["ds"] = measured(network("net"), batch_sizes=[1])

    with pytest.raises(UsageError, match="invalid deadline: got 'soon'"):
        shell.run_line_magic("ngcapacity", "ds --deadline soon")
    with pytest.raises(UsageError, match=r"invalid batch size: got 1\.5; expected an integer >= 1"):
        shell.run_line_magic("ngcapacity", "ds --deadline 1s -b 1.5")
    with pytest.raises(UsageError, match="'other' is not a dataset; expected one of ds"):
        shell.run_line_magic("ngcapacity", "other --deadline 1s")


def test_an_interrupt_is_no_traceback(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement that Ctrl-C ended says so."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(capacity, "capacity", interrupt)
    shell.user_ns["ds"] = measured(network("net"), batch_sizes=[1])

    with pytest.raises(KeyboardInterrupt) as caught:
        shell.run_line_magic("ngcapacity", "ds --deadline 1s")

    assert ["KeyboardInterrupt: stopped."] == caught.value._render_traceback_()

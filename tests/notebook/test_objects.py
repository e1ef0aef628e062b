"""The display of a sweep and of a dataset as the value of a cell."""

from __future__ import annotations

from drawn import crashing, measured, network, sweep
from IPython.core.interactiveshell import InteractiveShell


def display(shell: InteractiveShell, value: object) -> tuple[str, str]:
    """Format a value as text and as HTML."""
    bundle, _ = shell.display_formatter.format(value)  # type: ignore[union-attr]
    return bundle["text/plain"], bundle["text/html"]


def test_a_sweep_is_described(shell: InteractiveShell) -> None:
    """The sheet has the number of trials, their labels, and the options of the sweep."""
    text, html = display(shell, sweep(network("block", width=(8, 16)), batch_sizes=[1, 2, 3]))

    assert "12 trials in 6 groups" in text
    assert "-c identity,openvino -b 1:3 -r 10" in text
    assert "factor width" in html
    assert "8,16" in html


def test_a_dataset_is_described(shell: InteractiveShell) -> None:
    """The sheet has the trials by status, the labels, the metrics and the figures."""
    text, html = display(shell, crashing(sweep(network("a"), network("b")), "openvino", 4).ngb)

    assert "8 trials: 6 ok, 2 crashed" in text
    assert "median of 10 samples per trial" in html
    assert "a, b" in html
    assert "speedup" in text
    assert "heatmap" in text


def test_unloading_restores_the_plain_display(shell: InteractiveShell) -> None:
    """An accessor displays only plain text after the extension is unloaded."""
    shell.run_line_magic("unload_ext", "ngbkit")
    bundle, _ = shell.display_formatter.format(measured().ngb)  # type: ignore[union-attr]
    shell.run_line_magic("load_ext", "ngbkit")

    assert {"text/plain"} == set(bundle)
    assert "Metrics at" in bundle["text/plain"]

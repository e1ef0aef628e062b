"""How long contended calls are repeated."""

from __future__ import annotations

from ngbkit.device.timing.patience import Patience


def test_it_lasts_until_the_extra_time_is_spent() -> None:
    """Repetitions count in full, and planned pieces by how much longer they took."""
    patience = Patience(factor=2.0, planned_s=1.0)
    patience.record(0.5, 0.0, contended=True)
    patience.record(0.3, 0.2, contended=False)

    assert 0.6 == patience.extra_s
    assert patience.lasts
    patience.record(1.5, 0.0, contended=False)
    assert not patience.lasts


def test_a_fast_piece_buys_no_time() -> None:
    """Less time than planned is no credit."""
    patience = Patience(factor=1.0, planned_s=10.0)
    patience.record(0.1, 0.5, contended=False)

    assert 0.0 == patience.extra_s


def test_no_patience_repeats_nothing() -> None:
    """A patience of factor 0 repeats nothing."""
    assert not Patience(factor=0.0, planned_s=10.0).lasts


def test_repeating_is_futile_while_the_machine_stays_contended() -> None:
    """Repeats are futile after a time without an uncontended piece."""
    short, long = Patience(factor=100.0, planned_s=1.0), Patience(factor=100.0, planned_s=20.0)
    for patience in (short, long):
        for _ in range(4):
            patience.record(1.0, 0.0, contended=True)

    assert (True, False) == (short.futile, long.futile)
    assert not short.lasts
    short.record(0.1, 0.1, contended=False)
    assert short.lasts

"""A click on a mark of the tradeoff finds its trial."""

from __future__ import annotations

from drawn import COSTED, Spec, build_costed

from ngbkit import figures
from ngbkit.panels import trial as trials


def test_a_mark_of_a_precision_has_its_own_trial() -> None:
    """Marks have the colour of their runtime, and a click finds the column with the precision, not that in f32."""
    data = build_costed(accuracy=0.8)
    listed = trials.list_trials(data)
    rows = [row for row in Spec(figures.tradeoff(data)).rows if row.get("kind") == "trial"]
    labels = [[listed[index]["compiler"] for index in trials.match_row(row, listed)] for row in rows]

    assert [[name] for name in COSTED] == labels

"""What others have published, as datasets of ngbkit's own schema, to be drawn beside what was measured here."""

from ngbkit.dataset.reference.paper import TABLES, table

__all__ = ["TABLES", "table"]

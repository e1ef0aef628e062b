"""Published results as datasets of ngbkit's own schema, for comparison with measurements."""

from ngbkit.dataset.reference.paper import TABLES, table

__all__ = ["TABLES", "table"]

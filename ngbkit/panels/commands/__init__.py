"""The magic that shows a panel."""

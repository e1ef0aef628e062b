"""The command that explains a gap, for shell and magic alike."""

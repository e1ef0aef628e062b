"""The commands that predict networks and optimize one, for shell and magics alike."""

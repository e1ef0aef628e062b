"""Gates between versions: which trials are slower than they were, by more than chance and a margin, and since when."""

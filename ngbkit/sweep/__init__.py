"""A sweep: the grid of trials to measure, and the records that each trial leaves in a journal."""

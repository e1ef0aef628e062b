"""Timing of calls: warm-up, samples, the turns of a round, and the intervals of a median over rounds."""

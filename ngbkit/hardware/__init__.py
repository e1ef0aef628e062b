"""Hardware of a machine, and its state while it runs: chips, cores, memory, load, clocks, power."""

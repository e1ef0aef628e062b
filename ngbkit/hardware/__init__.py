"""What a machine is, and what it tells while it runs: chips, cores, memory, load, clocks, power."""

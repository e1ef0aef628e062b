"""Measurement of groups: the trials of one network, device and batch size, measured against each other.

bench           measures the bundles of a plan, and writes records
forking         forks the workers of a plan
preparing       first phase: networks, from the cache or from a child
loading         second phase: compiles each trial in a worker, and warms it up
bundles         what is timed in the same rounds
tuning          the tuning budget of a sweep, divided among trials
compiled        the compile cache of a trial
worker          one compiled trial: a live child, which is asked for turns
turn_log        the turns of a trial so far
interleaving    gives workers their turns, round by round
stopping        ends a worker's turns early: precise enough, or out of the race
"""

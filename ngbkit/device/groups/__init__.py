"""Measurement of groups: the trials of one network, device and batch size, measured against each other.

bench           prepares the networks, loads each compiler into a worker, and writes records
bundles         what is timed in the same rounds
tuning          the tuning budget of a sweep, divided among trials
compiled        the compile cache of a trial
worker          one compiled trial: a live child and its measurements so far
interleaving    gives workers their turns, round by round
stopping        ends a worker's turns early: precise enough, or out of the race
"""

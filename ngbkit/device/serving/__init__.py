"""Real load on a network: a generator in a process of its own, a queue, and a server that forms batches.

generator -> pipe -> batcher, in the child that holds the network at every batch size -> latencies
load        what is asked for: rates, seconds, delay
bench       loads the network, and runs the trials of a load
"""

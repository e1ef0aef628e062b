"""Real load on a network: MLPerf's LoadGen sends requests, and a server forms batches of those that wait.

load     the load, the record of a test, and the search for the highest rate that is valid
bench    loads the network at every batch size into one child, and runs the tests
loadgen  one test of LoadGen, in that child, and the server: which requests one call takes
"""

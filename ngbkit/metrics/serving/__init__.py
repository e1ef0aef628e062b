"""The capacity of a network: the best configuration within a deadline, and the highest rate of requests."""

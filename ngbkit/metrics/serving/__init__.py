"""What a network serves: the best configuration within a deadline, and the highest rate of requests."""

"""One kind of chart per file: each takes a dataset and returns an altair chart."""

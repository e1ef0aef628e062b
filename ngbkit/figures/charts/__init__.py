"""One chart a file: a dataset in, an altair chart out."""

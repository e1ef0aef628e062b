"""The caches that the devices of this machine keep between runs: list them, clean them, and carry tuning results along.

contents.py   lists the caches: preparations (ONNX files, references, compiled engines) and tuning results
cleaning.py   evicts entries
tar.py        reads and writes plain tar archives, with reproducible bytes and strict checks
manifest.py   the list of files at the start of an archive, and its limits
transfer.py   exports tuning results to an archive and imports them from one
"""

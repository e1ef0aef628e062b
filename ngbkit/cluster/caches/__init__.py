"""The caches that the devices of this machine keep between runs: list them and clean them.

contents.py   lists the caches: preparations (ONNX files, references, compiled engines) and tuning results
cleaning.py   evicts entries
"""

"""The parts of compiling and tuning with TVM's Relax.

network.py    an ONNX file: its inputs, precision and content hash
targets.py    compilation targets, and a check that the installed versions work together
lowering.py   from the network to functions, and from functions and tuning results to code
library.py    code and weights as files
tuned.py      a tuned library: from the store, from a search that resumes earlier tuning, or both
  store.py      the folder of one subject's tuning results, locked by one process at a time
  records.py    the result of each candidate, one per line
  search.py     tries candidates, function by function, within a budget
  allocation.py selects the function to try next
  measuring.py  builds candidates and times them, one process each
  forked.py     a forked process that may crash or hang
"""

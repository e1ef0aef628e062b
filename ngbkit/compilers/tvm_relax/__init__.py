"""What compiling with TVM's Relax is made of.

network.py    an ONNX file, and what it is, whatever machine it was exported on
targets.py    what to compile for, and whether the versions that are installed fit each other
lowering.py   from the network to functions, and from these and what tuning found to code
library.py    the code and the weights as files, and back
tuned.py      a library that tuning made, from what is kept of earlier tuning where there is some
  store.py      the folder that tuning keeps, who may write to it, and what it says of itself
  records.py    what became of each candidate, line by line
  search.py     tries candidates, function by function, within a budget
  allocation.py which function deserves the next candidates
  measuring.py  builds candidates and times them, one process each
  forked.py     work in a process of its own that may crash or hang
"""

"""What a program beside the CPU runs on: NVIDIA GPUs, by the CUDA driver alone, without any toolkit or framework.

probing.py says whether there is one and what it is, without leaving a trace in the process that asks; cuda.py is the
driver, its memory and its stream in a child that compiles and runs; events.py times by the GPU's own clock and empties
its L2 cache; graphs.py records a network's launches once.
"""

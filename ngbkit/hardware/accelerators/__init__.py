"""NVIDIA GPUs by the CUDA driver alone, without any toolkit or framework.

probing.py finds and describes a GPU without initialising CUDA in this process; cuda.py is the driver, its memory and
its stream in a child that compiles and runs; events.py times by the GPU's own clock and flushes its L2 cache; graphs.py
records a network's launches once.
"""

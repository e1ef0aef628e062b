"""Profiles of compiled networks: the kernels that a runtime executes, their seconds, and the nodes they compute.

profile        a profile and the profiler that measures it, for all runtimes
source_graph   the nodes of the network as it was compiled, with the torch modules they come from
provenance     maps executed kernels to source nodes
torch_graph    the nodes of a network of torch: the operators that modules call
onnxruntime, openvino, tensorrt   the profiler of each runtime that reads ONNX
torch_modules, inductor           those of identity and inductor
"""

"""Networks to run, from timm, block stacks, ONNX files, notebook cells and live modules.

maker (timm.model, blocks.conv, onnx.file, cell.from_source, module.from_module)
    -> Workload, plain JSON and artifacts, sent to the device -> Source.build there
    -> Network -> export (ONNX), feeds (inputs), counts (parameters, MACs)
"""

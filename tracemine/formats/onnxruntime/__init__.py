"""What ONNX Runtime's profiler writes: nodes of a model, timed on the host, and kernels where a GPU was recorded.

events.py     events, and what of a damaged file is left
model.py      the optimised model: which node reads what another writes
runs.py       runs of the model, and the nodes and kernels of each
patterns.py   nodes that one node could be
notes.py      what is to be said of a recording of host times
assemble.py   a timeline of all that
timeline.py   its reading, from the first to the last of these
read.py       how one begins
"""

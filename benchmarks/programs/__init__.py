"""Programs as people write them, each with what can be done about it: applied, compared with the original, and timed.

`host.py`, `device.py`, `left_out.py` and `unseen.py` hold the programs, `run.py` applies and times on a GPU, `score.py`
holds findings against it, `graphs.py` what is said of CUDA graphs and torch.compile.
"""

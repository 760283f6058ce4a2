"""Many traces: scan each once, keep what was found as one Parquet data set, and say what costs most over all of them.

places.py    paths and URIs, and how they are named without passwords
traces.py    which traces paths and object stores hold
dataset.py   the data set: its tables, written whole or not at all, by one process at a time
known.py     which traces it has already
task.py      one trace to rows of the data set
machine.py   a process that does tasks, within limits of time and memory
run.py       all tasks, on this machine's processes or on a Ray cluster (cluster.py)
report.py    what the data set says, by DuckDB
"""

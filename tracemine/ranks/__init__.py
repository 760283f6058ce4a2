"""One job, many ranks: who is late, what communication costs the job, and what its step would gain.

kinds.py       what a collective is, by the names that torch, NCCL and others give it
summary.py     one rank: its collectives, what it did between them, what held it
kernels.py     its kernels, to be compared with its peers'
reading.py     files read by several processes
cluster.py     files read by a Ray cluster
recognise.py   which files are the ranks of one job
clocks.py      how far the ranks' clocks lie apart
match.py       which collectives of the ranks are one and the same, proved by their clocks
replay.py      the job again, with other times between collectives
unprofiled.py  the job without the profiler
contended.py   computing that collectives which wait slow down
stragglers.py  ranks that hold the others up, each with a reason that the profiler does not make
exposed.py     communication that nothing hides, and communication that need not be
pipeline.py    stages of a pipeline
picture.py     what is drawn of a job
record.py      what is found, as printed
find.py        from files to a job's findings
"""

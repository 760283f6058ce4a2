"""One job, many ranks: who is late, what communication costs the job, and what its step would gain.

collectives.py the collectives of one rank, and what each sends
summary.py     one rank: its collectives, what it did between them, what held it
operators.py   what its host ran
parts.py       what its collectives are there for
kernels.py     its kernels, to be compared with its peers'
reading.py     files read, one that holds several ranks as these: here, by several processes, or by a Ray cluster
recognise.py   which files are the ranks of one job
clocks.py      how far the ranks' clocks lie apart
match.py       which collectives of the ranks are one and the same, proved by their clocks
replay.py      the job again, with other times between collectives
unprofiled.py  the job without the profiler
cause.py       what costs a job its time: the one record of all that follow
stragglers.py  ranks that hold the others up, each with a reason that the profiler does not make
links.py       groups that are slower than others, or than their links
needless.py    communication that need not be
exposed.py     communication that nothing hides
pipeline.py    stages of a pipeline
picture.py     what is drawn of a job
record.py      what is found, as printed
find.py        from files to a job's findings
compare.py     two recordings of a job
"""

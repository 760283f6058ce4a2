"""From findings to verdicts: rebuilt, generated, validated, and on a GPU timed.

prepare.py makes findings ready, pipeline.py validates, times and judges them; step/pipeline.py does so for a step:

rebuild/   a finding → its graph of ATen calls
library/   library calls that compute what a graph does
fixes/     fixed forms of what a finding's calls compute
gpu/       is it right on a GPU, and how long it takes: also the text of what reproductions share
repro/     reproductions of findings, and their harness
step/      a whole recorded step, with the kernels in place
workers/   child processes, several at a time
"""

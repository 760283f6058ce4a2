"""Fixed forms of what a finding's calls compute: functions next to the rebuilt eager calls, checked and timed on a GPU.

reproduction.py  finding → its calls, a fixed form of them, and the file that checks and times both
calls.py       of one library call
by_rule.py     how causes make one of an occurrence's calls
before_step.py of work that is taken out of the step
flex.py        attention with a score function
lanes.py       the iterations of a loop
written.py     calls as lines of Python
"""

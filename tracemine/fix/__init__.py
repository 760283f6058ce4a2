"""What a finding's fix is in the user's own program: a module to import, or a diff of the source. Nothing is run.

ways.toml    how each rule's fix is applied
kernel.py    a kernel as a module that needs nothing of this package; page.txt is what all such modules share
place.py     the user's source, parsed by LibCST, and the lines of it that a finding means
edits.py     changes of such lines, by name; each refuses what it does not know
diff.py      from a finding to a unified diff
"""

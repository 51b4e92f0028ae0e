"""What people and pods type: one command a file. Each imports its shell inside: a proxy never loads the operator.

Belongs here: options, their texts, exit statuses, and which parts a command puts together. Does not belong here:
anything that a test would rather call without a command line.
"""

NOT_HAD, BAD_INPUT = 1, 2  # exit statuses

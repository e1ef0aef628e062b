"""The commands: one file with one record each, for the shell and the magics alike.

command.py     the record, `Command`, and its discovery by entry point
answer.py      the answer of a command, as text, as HTML and as JSON
parser.py      parses words; arguments.py declares arguments of several commands
completion.py  lists the values that Tab offers; shell_completion.py offers them in a shell
shell.py       a call in a shell; signals.py ends it in order, streams.py writes its output
"""

"""The verbs of `ngbkit deploy` on a device: modules of the standard library alone, which are sent as text.

    folder.py   the state folder: its ngbkit entries, its lock, its live engines, its contents and their removal
    install.py  an environment with ngbkit, and a check of its compilers
    program.py  reads the request and prints the answer

They import each other, in this order, and nothing else of ngbkit.
"""

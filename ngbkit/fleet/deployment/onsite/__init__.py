"""The verbs of `deploy` and `undeploy` on a device: modules of the standard library alone, which are sent as text.

    folder.py   the state folder: its ngbkit entries, its lock, its live engines
    install.py  an environment with ngbkit, and a check of its compilers
    listing.py  the contents of the folder, and their removal
    program.py  reads the request and prints the answer

They import each other, in this order, and nothing else of ngbkit.
"""

"""What `deploy` and `undeploy` do on a device: modules of the standard library alone, which travel there as text.

    folder.py   what is ngbkit's in a device's folder, who has it for himself, which engines live there
    install.py  an environment with ngbkit in it, and what it can do
    holdings.py what lies there, and its removal
    program.py  what is asked for, and the answer

They import each other and nothing else of ngbkit, in this order.
"""

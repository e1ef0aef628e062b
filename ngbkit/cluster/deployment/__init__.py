"""ngbkit brought to a device, and taken away again; nothing has to be there but a Python.

deploy   -> wheel, wheelhouse -> errand -> onsite (over there): venv, pip, a look
undeploy -> errand -> onsite (over there): what is held, and its removal
"""

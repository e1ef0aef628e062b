"""Installs ngbkit on a device, and removes it; the device needs nothing but a Python.

deploy   -> wheel, wheelhouse -> remote -> onsite (on the device): venv, pip, a check of the result
undeploy -> remote -> onsite (on the device): a list of the contents, and their removal
"""

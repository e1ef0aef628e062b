"""What the devices of this machine keep between runs, and the verb that lists it, cleans it, and carries tuning along.

contents.py   what there is: preparations (ONNX files, references, compiled engines) and results of tuning
cleaning.py   what of it goes
tape.py       files one after the other in a tar archive, written alike each time and read with care
transfer.py   results of tuning to an archive and from one
arguments.py  the words of `ngbkit cache`
errand.py     carries them out
"""

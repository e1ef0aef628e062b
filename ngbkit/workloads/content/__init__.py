"""The content of a network: the files that its build loaded, and the network itself.

opened_files    what this process opens, as the kernel tells
loading         observes a build: imported modules, opened files, listed folders
manifests       what builds loaded, by hash; whether it is all unchanged; those that a device keeps
network_hash    the built network itself: its tensors, its code, its calls of operators
side_effects    the settings, replaced functions and statements that act beside the network
"""

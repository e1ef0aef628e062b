"""One table of arguments and one function a command, for the shell and the magics alike."""

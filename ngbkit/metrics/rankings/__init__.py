"""Which is the fastest: of the compilers of a group, of networks, and where their order turns."""

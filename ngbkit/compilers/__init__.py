"""Graph compilers and runtimes behind one small protocol (base.py), one file each."""

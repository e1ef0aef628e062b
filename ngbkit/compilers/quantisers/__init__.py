"""Quantisers behind one small protocol (../quantiser.py), a file for each tool."""

"""Explains the gap between two columns: profiles -> pieces -> times with intervals -> an explanation."""

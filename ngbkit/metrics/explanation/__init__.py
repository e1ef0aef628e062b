"""The gap between two columns, piece by piece: profiles -> pieces -> times with intervals -> an explanation."""

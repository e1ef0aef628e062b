"""What a user asks for, a grid of trials, and what each trial leaves: records, kept in a journal."""

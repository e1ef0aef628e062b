"""The commands that publish notebooks, and verify and replay a site."""

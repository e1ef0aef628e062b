"""Checks of a published site: each binds a kind of its files to the data, or to the manifest."""

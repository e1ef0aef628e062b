"""Labelled graphs, to which predictors are fitted: of stored runs, or of files and seconds from elsewhere."""

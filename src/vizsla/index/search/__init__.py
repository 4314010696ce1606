"""Queries to results: a model bound to a collection, the plan of a search, hits and explanations."""

"""Encoders of anybody's, from a folder or the model hub, to callables: token ids or texts to weights and vectors."""

"""Backups: commits of an index in pieces, in another folder or an object store."""

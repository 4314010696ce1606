"""An index on disk: its database, the files of its segments, locks, and its folder."""

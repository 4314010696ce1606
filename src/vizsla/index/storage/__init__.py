"""What lies on disk: the database, segments as files, locks, the folder as a whole."""

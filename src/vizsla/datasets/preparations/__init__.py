"""How known data sets are prepared from the files that their owners publish, one file a source."""

"""What a reader sees: the segments, terms and documents of one commit."""

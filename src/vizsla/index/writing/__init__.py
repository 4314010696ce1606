"""Writing an index: documents are analysed, buffered, written as segments and committed."""

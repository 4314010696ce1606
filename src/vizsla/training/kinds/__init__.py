"""The kinds of models that can be trained, one file each: settings, data, loss, then the kind and what it writes."""

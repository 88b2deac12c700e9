"""What regular expressions match: which are valid, and a round of many over many names."""

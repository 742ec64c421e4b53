"""One page from finished runs: what they wrote is read, made into tables and pictures, and joined to HTML."""

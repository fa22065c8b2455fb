"""Pack Python, the packages that jobs import, and Java into an archive for nodes that have none of them."""

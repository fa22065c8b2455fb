"""How one application is planned, submitted, watched and ended on a kind of cluster."""

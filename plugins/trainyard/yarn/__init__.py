"""What YARN knows about applications, asked by REST, and what follows from it."""

"""What the paper varies: code books, lifts, and their composition into an input interface."""

"""What a card says: in which generation, to whom it could mean two things, and what clients of two generations read."""

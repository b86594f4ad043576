"""Cards: JSON in, signed JSON out, and back."""

"""Cards of every generation: their content, ambiguous members, and cards for clients of two generations."""

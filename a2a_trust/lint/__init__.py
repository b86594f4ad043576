"""What in a card should be otherwise, and why: the rules, and what they find."""

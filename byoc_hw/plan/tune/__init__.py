"""Searches for better choices than the planner's: the space of choices, moves in it, and rounds of trials."""

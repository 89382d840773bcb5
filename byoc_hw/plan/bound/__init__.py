"""Lower bounds on the cycles of all plans of a region."""

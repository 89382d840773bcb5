"""The planner's own choices: layers in groups by dynamic programming on estimates, the best ones laid out in full."""

"""The order of copies and jobs, the waits that it needs, and the cycles of a plan."""

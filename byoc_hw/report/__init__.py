"""Reports for people: the offload report, tables of cycles, the schedule and its pictures."""

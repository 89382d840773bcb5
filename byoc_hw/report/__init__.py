"""What people read: the offload report and its pictures."""

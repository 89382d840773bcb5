"""Relay -> Relay: operators in terms of others that the patterns take, with the same results bit for bit."""

"""How layers lie on the array and what they cost there: geometry, mapping, storages, cycles, blocks of weights."""

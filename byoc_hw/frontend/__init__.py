"""Front ends: import and partition a model, and lower its regions to graphs. `seam.py` is their interface."""

"""Front ends: from a model to a partitioned module and its graphs."""

"""byoc_hw."""

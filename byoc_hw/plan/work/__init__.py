"""Choices to copies and jobs: what each stripe or tile loads, computes and stores, on buffers without addresses."""

"""One composite per file. All modules of this folder are imported at the first use of the table."""

"""Files in, results out: build a project directory and run it."""

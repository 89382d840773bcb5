"""One composite a file. Every module of this folder is imported when the table is first used."""

"""When each copy and job starts, which waits that needs, and the time that a plan takes."""

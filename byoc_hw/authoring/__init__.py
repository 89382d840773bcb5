"""For who writes patterns: new files to start from, checks for their tests, and a fuzzer of one pattern."""

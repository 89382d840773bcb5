"""One network over many processing elements (PEs): its pieces, their programs, and runs of all of them."""

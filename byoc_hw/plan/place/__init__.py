"""Places buffers by lifetime: in local memory, in a region's scratch, and in the arena of a whole model."""

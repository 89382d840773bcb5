"""From choices to copies and jobs of each stripe or tile, on buffers without addresses."""

"""What a layer of the network does around its attention, for a few rows, in one call each."""

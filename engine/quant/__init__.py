"""Fewer bits a weight: grids, the methods that choose codes on them, and the text they look at."""

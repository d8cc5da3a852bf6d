"""The gate of a feed-forward layer: SwiGLU."""

"""The residual stream: float32, and what layers add to it."""

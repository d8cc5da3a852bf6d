"""Speculative decoding: a cheap draft proposes, the target verifies in one pass.

Which tokens stand is decided in `accept`; what it can gain is the formula of `formula`.
"""

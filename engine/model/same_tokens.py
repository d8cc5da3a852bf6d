"""Whether two models speak in the same tokens, as a draft and its target must."""

from __future__ import annotations

from engine.clean import clean
from engine.model.tokenizer import Tokenizer


def first_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """The first token that is not the same in both, in words; None where all are.

    The same text may still be cut differently: a draft goes on from tokens, and never cuts any.
    """
    for token in range(max(target.vocabulary_size, draft.vocabulary_size)):
        ours, theirs = _meaning(target, token), _meaning(draft, token)
        if ours != theirs:
            return f"token {token} is {ours} in the model and {theirs} in the draft"
    return None


def _meaning(tokenizer: Tokenizer, token: int) -> str:
    if token >= tokenizer.vocabulary_size:
        return "none"
    if token in tokenizer.special_ids:
        told = f"the control token {tokenizer.special_text(token)}"
    else:
        told = repr(tokenizer.token_bytes(token))
    return clean(told, limit=60, one_line=True)

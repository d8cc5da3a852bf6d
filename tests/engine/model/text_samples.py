"""Texts of every kind that a tokenizer must get right."""

from __future__ import annotations

SAMPLES = {
    "empty": "",
    "prose": "It was the best of times, it was the worst of times; isn't it? I'll say so, they'd.",
    "capitals": "HELLO World, IT'S McDonald's",
    "code": "def f(x):\n    return {k: v**2 for k, v in x.items()}  # squares\n\n\n\tpass\r\n",
    "digits": "2024-12-31 3.14159 1000000 7 77",
    "chinese": "延迟之壁吞下每一个赌注，时间在这里凝固。",
    "emoji": "🎉👩‍👩‍👧‍👦🏳️‍🌈 ok 👍🏽",
    "mixed": "naïve café — “quotes” … ﬁ ᾳ Å e\u0301 ЁЖ עברית العربية ไทย",
    "space": "   leading, \u00a0 trailing \t \n\n \u3000 ",
    "controls": "\x00\x01\x7f\u200b\ufeff",
    "spelled": "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><|im_start",
}

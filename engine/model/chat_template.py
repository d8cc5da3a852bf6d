"""Chat templates: Jinja programs that come with a model and are trusted with nothing.

They run in Jinja's immutable sandbox and see only the messages; what they write is bounded. The
clock in their world stands still: some templates put today's date into the prompt, which would
make the same question another prompt tomorrow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.clean import clean
from engine.model.errors import ModelError

MAX_TEMPLATE_CHARACTERS = 256 * 1_024
MAX_PROMPT_CHARACTERS = 8 * 2**20
DATE = date(2024, 7, 26)  # the day that Llama 3's templates themselves name when they have no clock
ROLES = ("system", "user", "assistant", "tool")

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""What a model without a template of its own is spoken to in."""


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's own words for training; here it changes nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template and the special tokens it may name.

    Raises:
        ModelError: the source is too long or is not a Jinja template.
    """

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise ModelError(
                f"the chat template is {len(source)} characters long; at most "
                f"{MAX_TEMPLATE_CHARACTERS} are read"
            )
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = DATE.strftime
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelError(f"the chat template cannot be compiled: {_line(error)}") from None

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """The prompt that asks for the assistant's next message.

        Raises:
            ModelError: an unknown role, or a template that refuses these messages or fails.
        """
        for role, _ in messages:
            if role not in ROLES:
                raise ModelError(f"{clean(role, 40)!r} is no role; legal: {', '.join(ROLES)}")
        values: Mapping[str, object] = {
            "messages": [{"role": role, "content": content} for role, content in messages],
            "add_generation_prompt": True,
            "tools": None,
            "documents": None,
            **self._tokens,
        }
        parts: list[str] = []
        length = 0
        try:
            for part in self._template.generate(values):
                length += len(part)
                if length > MAX_PROMPT_CHARACTERS:
                    raise ModelError(
                        f"the chat template wrote over {MAX_PROMPT_CHARACTERS} characters"
                    )
                parts.append(part)
        except ModelError:
            raise
        except (
            jinja2.TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:
            raise ModelError(f"the chat template refuses: {_line(error)}") from None
        return "".join(parts)


def _to_json(value: object, indent: int | None = None) -> str:
    """Jinja's own filter escapes HTML, which prompts are not."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _line(error: BaseException) -> str:
    return clean(str(error), limit=200, one_line=True)

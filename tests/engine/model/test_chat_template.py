"""Chat templates render as they do in the library they were written for, and cannot misbehave."""

from __future__ import annotations

import pytest

from engine.model.chat_template import CHATML, MAX_TEMPLATE_CHARACTERS, ChatTemplate
from engine.model.errors import ModelError

CONVERSATION = [
    ("system", "Be brief."),
    ("user", "  What is 2 + 2?\n"),
    ("assistant", "4"),
    ("user", "And <b>3</b> & 你好 🎉?"),
]

LLAMA3 = (
    "{{- bos_token }}\n"
    "{%- if strftime_now is defined %}\n"
    '    {%- set date_string = strftime_now("%d %b %Y") %}\n'
    "{%- else %}\n"
    '    {%- set date_string = "26 Jul 2024" %}\n'
    "{%- endif %}\n"
    "{{- 'Today Date: ' + date_string + '\\n\\n' }}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    " + message['content'] | trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"
    "{%- endif %}\n"
)
MARKED = (
    "{% for message in messages %}{% generation %}{{ message.content }}{% endgeneration %}|"
    "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}"
    "{% if tools is not none %}tools{% endif %}{{ messages | tojson }}"
)


@pytest.mark.oracle
@pytest.mark.parametrize("source", [CHATML, MARKED], ids=["chatml", "marked"])
def test_renders_as_transformers_does(source: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [{"role": role, "content": text} for role, text in CONVERSATION]
    expected = render_jinja_template(
        [messages], chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    rendered = expected[0][0] if isinstance(expected, tuple) else expected[0]
    assert ChatTemplate(source, bos_token="<s>").render(CONVERSATION) == rendered


def test_templates_see_a_clock_that_stands_still() -> None:
    with_clock = ChatTemplate(LLAMA3, bos_token="<|begin_of_text|>").render(CONVERSATION[1:2])
    assert with_clock == (
        "<|begin_of_text|>Today Date: 26 Jul 2024\n\n"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_template_refuses_in_its_own_words() -> None:
    template = ChatTemplate("{{ raise_exception('only \x1b[31muser\x1b[0m roles') }}")
    with pytest.raises(ModelError, match="only user roles"):
        template.render([("user", "hi")])


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% include '/etc/passwd' %}",
        "{{ messages[5].content }}",
        "{{ 1 / 0 }}",
        "{{ undefined_function() }}",
        "{{ 1 + 'a' }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_what_the_sandbox_forbids_or_python_cannot_do(source: str) -> None:
    template = ChatTemplate(source)
    try:
        text = template.render([("user", "hi")])
    except ModelError as error:
        assert "chat template" in str(error)
    else:
        assert text == ""  # unsafe attributes are undefined, and print as nothing


def test_output_without_end_is_cut_off() -> None:
    source = "{% for i in range(99999) %}{% for j in range(999) %}{{ i }}{% endfor %}{% endfor %}"
    with pytest.raises(ModelError, match="characters"):
        ChatTemplate(source).render([("user", "hi")])


@pytest.mark.parametrize("source", ["{% if %}", "{{", "{% for x in y %}", "{% unknown %}"])
def test_sources_that_are_no_templates(source: str) -> None:
    with pytest.raises(ModelError, match="compiled"):
        ChatTemplate(source)


def test_source_that_is_too_long() -> None:
    with pytest.raises(ModelError, match="long"):
        ChatTemplate("x" * (MAX_TEMPLATE_CHARACTERS + 1))


def test_unknown_role_is_refused_with_the_legal_ones() -> None:
    with pytest.raises(ModelError, match="'wizard'.*system, user"):
        ChatTemplate(CHATML).render([("wizard", "hi")])

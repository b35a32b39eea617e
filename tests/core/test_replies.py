import contextlib
import json
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from nanomem_core import replies
from nanomem_core.errors import GeneratorError, ReplyError
from nanomem_core.replies import MAX_DEPTH, REPAIRS, Reply, parse_reply

FACTS = {"type": "object", "required": ["facts"], "properties": {"facts": {"type": "array"}}}

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
    | st.sampled_from(["```json", "```", "<think>", "</think>", "{", "]", "'", '"', "\\", "it's", "NaN"])
)  # fmt: skip
values = st.recursive(scalars, lambda part: st.lists(part, max_size=4) | st.dictionaries(texts, part, max_size=4))
containers = st.lists(values, max_size=4) | st.dictionaries(texts, values, max_size=4)
prose = st.text(string.ascii_letters + " .,:;!?\n'\"-", max_size=40)


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


# The seven replies to one request.


@pytest.mark.parametrize(
    ("text", "facts", "repairs"),
    [
        ('```json\n{"facts": ["likes tea"]}\n```', ["likes tea"], {"fence": 1}),
        (
            'Here are the facts I extracted:\n{"facts": ["likes tea"]}\nLet me know if you need more!',
            ["likes tea"],
            {"prose": 1},
        ),
        (
            '{"facts": ["uses this snippet: ```python\nprint(1)\n``` every day"]}',
            ["uses this snippet: ```python\nprint(1)\n``` every day"],
            {"control_character": 1},
        ),
        (
            '```json\n{"facts": ["docs say: wrap code in ``` fences"]}\n```',
            ["docs say: wrap code in ``` fences"],
            {"fence": 1},
        ),
        ("```json\n[]\n```", [], {"bare_list": 1, "fence": 1}),
        ('{"facts": ["a"]} {"facts": ["b"]}', ["a"], {"several": 1}),
    ],
)
def test_a_wrapped_answer_keeps_its_facts(text, facts, repairs):
    assert parse_reply(text, FACTS) == Reply({"facts": facts}, repairs)


def test_an_answer_without_json_is_refused_and_not_quoted():
    with pytest.raises(ReplyError) as caught:
        parse_reply("I could not find any facts.", FACTS)
    assert str(caught.value) == (
        "answer of the model: expected a JSON object with 'facts' (array); found 27 characters without one"
    )
    assert isinstance(caught.value, GeneratorError)
    assert isinstance(caught.value, ValueError)


# Which value counts.


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ('{"episode": {"facts": ["inner"]}, "facts": ["outer"]}', ["outer"]),
        ('Format: {"facts": "..."}. Answer: {"facts": ["a"]}', ["a"]),
        ('As [1] says {really}: {"facts": ["a"]}', ["a"]),
        ('[see below\n{"facts": ["a"]}', ["a"]),
        ('["\n{"facts": ["a"]}', ["a"]),
        ('[ {"facts": ["a"]},', ["a"]),
        ('{"facts" are: {"facts": ["a"]}', ["a"]),
        ('[{"facts": ["a"]}]', ["a"]),
        ('["a", "b"]', ["a", "b"]),
        ('["x"] {"facts": ["a"]}', ["a"]),
        ('{"facts": ["a"]} trailing {"facts": ["b', ["a"]),
    ],
)
def test_the_first_whole_value_of_the_wanted_shape_counts(text, facts):
    assert parse_reply(text, FACTS).value["facts"] == facts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "an empty answer"),
        (" \n\t", "an empty answer"),
        ("{}", "an object without 'facts'"),
        ('{"facts": "likes tea"}', "an object in which 'facts' is a text"),
        ('{"facts": null}', "an object in which 'facts' is null"),
        ('{"facts": {"a": 1}}', "an object in which 'facts' is an object"),
        ('{"facts": true}', "an object in which 'facts' is a truth value"),
        ('{"facts": 5}', "an object in which 'facts' is a number"),
        ('[{"facts": ["a"]}, {"facts": ["b"]}]', "an array"),
        ('{"facts": ["likes', "an answer that breaks off too early"),
        ('{"facts": [', "an answer that breaks off too early"),
        ("{", "an answer that breaks off too early"),
        ('{"facts": ["it"s"]}', "19 characters without one"),
        ("{'facts': ['it's']}", "19 characters without one"),
        ('{"facts": ["a" "b"]}', "20 characters without one"),
        ('{"facts": [1,,2]}', "17 characters without one"),
        ('{"facts": [01]}', "15 characters without one"),
        ('<think>{"facts": ["a"]}</think>', "a thought without an answer behind it"),
        ('<think>{"facts": ["a"]} or', "a thought without an answer behind it"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_reason(text, found):
    with pytest.raises(ReplyError) as caught:
        parse_reply(text, FACTS)
    assert caught.value.found == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('<think>Maybe {"facts": ["draft"]}?</think>{"facts": ["a"]}', ["a"]),
        ('<Thinking>\n{"facts": ["draft"]}\n</THINKING>\n{"facts": ["a"]}', ["a"]),
        ('Maybe {"facts": ["draft"]}?</think>\n{"facts": ["a"]}', ["a"]),
        ('<think>Maybe {"facts": ["draft"]}. So:\n```json\n{"facts": ["a"]}\n```\n', ["a"]),
        ('<think>a<think>b</think>{"facts": ["draft"]}</think>{"facts": ["a"]}', ["a"]),
        ('{"facts": ["<think>", "</think>"]}', ["<think>", "</think>"]),
        ('<think>hm</think>{"facts": ["</think>"]}', ["</think>"]),
        ('<think>hm {"facts": ["</think>"]}', ["</think>"]),
    ],
)
def test_a_thought_is_no_answer_and_a_quoted_tag_is_no_thought(text, value):
    assert parse_reply(text, FACTS).value == {"facts": value}


def test_a_thought_that_is_closed_is_no_prose():
    assert parse_reply('<think>hm, {</think>\n{"facts": []}', FACTS).repairs == {"thinking": 1}
    assert parse_reply('{"facts": ["<think>"]}', FACTS).repairs == {}


def test_properties_are_held_against_their_types_and_choices():
    schema = {
        "type": "object",
        "required": ["decision"],
        "properties": {
            "decision": {"type": "string", "enum": ["merge", "new"]},
            "target": {"type": ["integer", "null"]},
        },
    }
    assert parse_reply('{"decision": "new"}', schema).value == {"decision": "new"}
    assert parse_reply('{"decision": "merge", "target": 3}', schema).value["target"] == 3
    for text, found in (
        ('{"decision": "perhaps"}', "an object in which 'decision' is none of merge, new"),
        ('{"decision": "new", "target": true}', "an object in which 'target' is a truth value"),
        ('{"decision": "new", "target": 1.5}', "an object in which 'target' is a number"),
    ):
        with pytest.raises(ReplyError) as caught:
            parse_reply(text, schema)
        assert caught.value.found == found


# Repairs inside a value.


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ('{"a": [1, 2,],}', {"a": [1, 2]}, {"trailing_comma": 2}),
        ("{'a': 'it\\'s', 'b': True}", {"a": "it's", "b": True}, {"python_literal": 1, "single_quotes": 3}),
        ("[None, False]", [None, False], {"python_literal": 2}),
        ("[NaN, Infinity, -Infinity, 1e999]", [None] * 4, {"not_a_number": 4}),
        (f"[{'9' * 5000}]", [None], {"not_a_number": 1}),
        (r'["C:\dir", "\u12", "it\'s"]', ["C:\\dir", "\\u12", "it's"], {"bad_escape": 3}),
        (r'["\ud83e\uded6", "\ud83e", "\ufffd"]', ["🫖", "�", "�"], {"bad_escape": 1}),
        ('["a\tb\nc\x00"]', ["a\tb\nc\x00"], {"control_character": 1}),
        ('\ufeff{"a": 1}', {"a": 1}, {"byte_order_mark": 1}),
        ('{"a": 1, "a": 2}', {"a": 2}, {}),
        ("[-0.5e-3, 12, -7]", [-0.0005, 12, -7], {}),
    ],
)
def test_a_value_is_mended_where_that_is_certain(text, value, repairs):
    assert parse_reply(text) == Reply(value, repairs)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('[{"a": 1}, {"a": 2', [{"a": 1}]),
        ('[{"a": [1, 2]}, {"a": [3], "b": "c"', [{"a": [1, 2]}]),
        ('{"facts": ["a", "b"', {"facts": ["a", "b"]}),
        ('{"facts": ["a", "b', {"facts": ["a"]}),
        ('{"facts": ["a", ', {"facts": ["a"]}),
        ('{"n": [1, 12', {"n": [1]}),
        ('{"n": [true, fal', {"n": [True]}),
        ('{"n": [1, -', {"n": [1]}),
        ('{"n": [1, 1.', {"n": [1]}),
        ('{"title": "x", "content": "y"', {"title": "x", "content": "y"}),
        ('{"title": "x", "content": "y', {"title": "x"}),
        ('{"title": "x", "con', {"title": "x"}),
        ('{"title": "x", "content":', {"title": "x"}),
        ('{"title": "x", "more": {"deep": "y', {"title": "x"}),
        ('{"title": "x", "list": [{"a": ', {"title": "x"}),
        ('{"a": 1, "b": 2, "a": [', {"b": 2}),
    ],
)
def test_an_answer_that_breaks_off_keeps_what_is_certain(text, value):
    assert parse_reply(text) == Reply(value, {"truncated": 1})


@given(st.lists(st.dictionaries(texts, texts, min_size=1), min_size=1), st.data())
def test_a_cut_never_changes_an_element(elements, data):
    text = dumps({"facts": elements})
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        kept = parse_reply(cut, FACTS).value["facts"]
    except ReplyError:
        return
    assert kept == elements[: len(kept)]
    assert kept


# Any text, any value.

pieces = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        ",",
        ":",
        "\\",
        "\\u",
        "```json",
        "<think>",
        "</think>",
        "true",
        "None",
        "-",
        "1e",
        "é",
    ]
)


@given(st.text() | st.lists(pieces | texts, max_size=60).map("".join), st.sampled_from([None, FACTS]))
@example('{"a": ', None)
@example("{'", FACTS)
@example("\ud83e", None)
def test_any_text_gives_a_valid_value_or_a_reply_error(text, schema):
    try:
        reply = parse_reply(text, schema)
    except ReplyError:
        return
    assert isinstance(reply.value, (dict, list))
    assert json.loads(json.dumps(reply.value, allow_nan=False).encode("utf-8")) == reply.value
    assert reply.repairs.keys() <= REPAIRS.keys()
    assert all(count > 0 for count in reply.repairs.values())


@given(
    containers,
    st.sampled_from(["", "\ufeff"]),
    st.sampled_from(["", "<think>{0}</think>", "{0}</think>", "<think>{0}"]),
    prose,
    st.sampled_from(["{}", "```\n{}\n```", "```json\n{}\n```", "```\n```json\n{}\n```\n```"]),
    prose,
    st.sampled_from([None, 2]),
)
def test_a_value_comes_back_from_every_wrapping(value, mark, thought, before, fence, behind, indent):
    if thought.endswith("{0}"):
        behind = ""  # behind a thought that is not closed only what ends the reply counts
    body = json.dumps(value, ensure_ascii=indent is None, indent=indent)
    # Nobody could tell whether the thought ends at a quoted tag.
    assume(not (thought.endswith("{0}") and "</think" in body.casefold()))
    text = mark + thought.replace("{0}", 'perhaps {"facts": ["draft"]}?') + before
    text += fence.replace("{}", body) + behind
    assert parse_reply(text).value == value


@given(containers)
def test_a_plain_value_needs_no_repair(value):
    assert parse_reply(dumps(value)) == Reply(value, {})


def as_python(value):
    """`value` as a model writes it that thinks of Python: single quotes wherever that is unambiguous."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_python(key)}: {as_python(item)}" for key, item in value.items()) + ",}"
    if isinstance(value, list):
        return "[" + "".join(f"{as_python(item)}, " for item in value) + "]"
    if isinstance(value, str):
        return "'" + dumps(value)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
    return repr(value) if value is None or isinstance(value, bool) else dumps(value)


@given(containers.filter(bool))
def test_a_value_comes_back_from_python_s_spelling(value):
    text = as_python(value)
    text = text.replace("{,}", "{}")
    assert parse_reply(text).value == value


# Size.


def test_deep_nesting_is_refused_without_recursion():
    inside = "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1)
    assert parse_reply(f"[{inside}]").value
    for text in (f"[[{inside}]]", "[" * 1_000_000, '{"a":' * 1_000_000):
        with pytest.raises(ReplyError, match="64 levels"):
            parse_reply(text)


@pytest.mark.parametrize(
    "piece",
    [
        "{", "[*", "['", '["', '{"a', "{'a\\'", '{"a":1', "[1,", "[-", "[1.", "<think>", "</think>", "```", "\\",
        "[\\u", '{"a":{', "x ", "[]{", '[{"a":"', "\ufeff", "[tru", " ",
    ],
)  # fmt: skip
def test_the_work_is_in_proportion_to_the_length(piece, monkeypatch):
    # Characters are counted, not seconds: reading may start again a few times, but never once for each bracket.
    begun = []
    read_value = replies.read_value

    def counting(text, start):
        try:
            found = read_value(text, start)
        except replies.Broken as broken:
            begun.append(broken.args[0] - start)
            raise
        begun.append(found.end - start)
        return found

    monkeypatch.setattr(replies, "read_value", counting)
    text = piece * (60_000 // len(piece))
    with contextlib.suppress(ReplyError):
        parse_reply(text, FACTS)
    assert sum(begun) <= 8 * len(text)


def test_megabytes_of_garbage_end_with_the_answer_behind_them():
    for garbage in ("blah " * 400_000, "{x} [y] " * 100_000, '"' * 1_000_000, "[1, 2] " * 50_000):
        assert parse_reply(garbage + '\n{"facts": ["a"]}', FACTS).value == {"facts": ["a"]}

"""One record, one document: what is written comes back, and what others wrote keeps its bytes."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import InputError
from nanomem_core.records import Record, check_record
from nanomem_core.testing.samples import NOON, ODD_METADATA, ODD_TEXTS, fact
from nanomem_plugins.markdown import frontmatter
from nanomem_plugins.markdown.document import (
    MAX_FRONT,
    Owner,
    parse_document,
    render_document,
)
from nanomem_plugins.markdown.instants import time_text, time_value

from .material import deermem_fact

OWNER = Owner("ann", "__default__")
SAMPLE = deermem_fact("fact_ab12")


def written(record, like=None):
    return render_document(record, 123, OWNER, NOON, like)


def assert_kept(record):
    data = written(record)
    found = parse_document(data, OWNER)
    assert found.record == record
    assert json.dumps(dict(found.record.metadata)) == json.dumps(dict(record.metadata))
    assert (found.birth, found.sealed) == (123, True)
    assert written(record, found) == data or found.record.version > 1


def numbered(record):
    return record.numbered(1, record.revision or 1)


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
def test_odd_texts_and_sources_come_back(text):
    assert_kept(numbered(fact("a", text)))
    assert_kept(numbered(fact("a", source=text)))
    assert_kept(numbered(fact("a", metadata={"note": text, "title": text})))


@pytest.mark.parametrize(
    "metadata",
    [
        *ODD_METADATA,
        {"a": 1, "category": "context", "b": 2},
        {"category": "knowledge", "confidence": 1, "topics": ["x"]},
        {"category": 3, "confidence": "high", "topics": "x", "consolidatedFrom": [1]},
        {"title": "T", "confidence": 0.9},
        {"title": "two\nlines"},
        {"user_id": "x", "id": "y", "content": "z", "status": "w", "nanomem": {"keys": [1]}, "zz": [1.0, 1]},
        {"sourceForm": {"type": "custom", "threadId": "t"}},
    ],
    ids=repr,
)
def test_metadata_comes_back_in_order_whatever_its_keys_are(metadata):
    assert_kept(numbered(fact("a", metadata=metadata)))


@given(
    st.builds(
        Record,
        st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda id: "\0" not in id),
        st.text(st.characters(codec="utf-8")),
        kind=st.sampled_from(["fact", "episode", "message", "summary"]),
        entity=st.sampled_from([None, "city"]),
        declared=st.booleans(),
        revision=st.integers(1, 9),
        version=st.integers(1, 9),
        valid_from=st.floats(allow_nan=False, allow_infinity=False),
        valid_to=st.none() | st.floats(-1e12, 1e12),
        recorded_at=st.floats(allow_nan=False, allow_infinity=False),
        closed_at=st.none() | st.floats(-1e12, 1e12),
        source=st.text(st.characters(codec="utf-8")),
        metadata=st.dictionaries(
            st.text(st.characters(codec="utf-8")) | st.sampled_from(["category", "title", "source", "keys"]),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(st.characters(codec="utf-8")),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
                ),
                max_leaves=5,
            ),
            max_size=4,
        ),
    )
)
def test_any_record_comes_back(record):
    found = parse_document(written(record), OWNER).record
    assert found == record
    assert json.dumps(dict(found.metadata)) == json.dumps(dict(record.metadata))


def test_a_document_of_deermem_is_read_with_every_field():
    data = SAMPLE.replace(b"topics:", b"lastConfirmedAt: 'x'\nconfirmationCount: 2\nexpected_valid_days: 30\ntopics:")
    found = parse_document(data, OWNER, "fact_ab12")
    record = found.record
    assert (record.id, record.text, record.version, record.revision) == ("fact_ab12", "Project uses Python 3.12.", 1, 1)
    assert (record.source, record.entity, record.valid_from) == ("thread_123", None, record.recorded_at)
    assert record.metadata == {
        "category": "constraint",
        "confidence": 0.95,
        "lastConfirmedAt": "x",
        "confirmationCount": 2,
        "expected_valid_days": 30,
        "topics": ["python", "runtime"],
        "consolidatedFrom": [],
        "title": "Runtime constraint",
    }
    assert not found.sealed


def test_times_without_quotes_stay_texts():
    data = SAMPLE.replace(b"'2026-07-19T00:00:00Z'", b"2026-07-19T00:00:00Z") + b""
    data = data.replace(b"topics:", b"reviewed: 2026-01-01\ntopics:")
    found = parse_document(data, OWNER, "fact_ab12")
    assert found.record.metadata["reviewed"] == "2026-01-01"
    assert found.record == parse_document(SAMPLE, OWNER, "fact_ab12").record.__class__.from_dict(found.record.to_dict())


def test_a_change_of_one_field_keeps_every_other_byte():
    data = (
        "\ufeff---\r\n# mine\r\nid: fact_ab12\r\ntopics: [a,   'b']   # two\r\nodd: !!binary eA==\r\n".replace(
            "odd: !!binary eA==\r\n", "odd:   {x: 1}\r\n1: one\r\n"
        )
        + "confidence:   0.50\r\n---\r\n\r\n#  Title\r\n\r\nbody\x0c\x1c\x85\u2028\u2029\r lone \r\n\r\n"
    ).encode()
    like = parse_document(data, OWNER, "fact_ab12")
    changed = replace(like.record, metadata={**like.record.metadata, "confidence": 0.75}, version=2)
    result = written(changed, like)
    assert result.startswith("\ufeff---\r\n# mine\r\nid: fact_ab12\r\ntopics: [a,   'b']   # two\r\n".encode())
    assert b"odd:   {x: 1}\r\n1: one\r\nconfidence: 0.75\r\n" in result
    assert result.endswith(data.partition(b"0.50\r\n---\r\n")[2])
    assert parse_document(result, OWNER, "fact_ab12").record == changed


@pytest.mark.parametrize("created", ["2026-07-19T00:00:00.500000Z", "2026-07-19T02:00:00+02:00", "long ago"])
def test_a_time_of_creation_keeps_its_form_whatever_it_is(created):
    old = parse_document(deermem_fact("fact_1", createdAt=f"'{created}'"), OWNER, "fact_1")
    new = parse_document(written(replace(old.record, version=2), old), OWNER, "fact_1")
    assert new.front.values["createdAt"] == created
    assert new.record == replace(old.record, version=2)


def test_a_heading_made_of_the_text_follows_it_and_a_given_one_stays():
    plain = parse_document(written(numbered(fact("a", "first line\nmore"))), OWNER)
    assert plain.heading == "first line"
    assert b"# other line\n\nother line\n" in written(replace(plain.record, text="other line"), plain)
    given_one = parse_document(written(numbered(fact("a", "text", metadata={"title": "Mine"}))), OWNER)
    assert b"# Mine\n\nother\n" in written(replace(given_one.record, text="other"), given_one)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Alder", b"Birch"),
        (b"revision: 1\n", b"revision: 2\n"),
        (b"declared: true", b"declared: false"),
        (b"\n", b"\r\n"),
    ],
)
def test_the_seal_shows_any_change(old, new):
    data = written(numbered(fact("a", "Works at Alder", entity="job", declared=True)))
    assert parse_document(data, OWNER).sealed
    assert not parse_document(data.replace(old, new), OWNER).sealed


@pytest.mark.parametrize(
    ("front", "reason"),
    [
        ("id: [a", "no valid YAML"),
        ("- id", "expected a mapping"),
        ("id: a\nid: b", "stands twice"),
        ("id: &x a\ny: *x", "aliases"),
        ("id: !!python/name:os.system a", "is not read"),
        ("id: a\n<<: {x: 1}", "plain key"),
        ("id: 7", "put it in quotes"),
        ("category: context", "expected the id"),
        ("id: a\nnanomem: 3", "expected a mapping"),
        ("id: a\nnanomem: {format: 9}", "another release"),
        ("id: a\nnanomem: {kind: dream}", "kind"),
        ("id: a\nnanomem: {valid_from: soon}", "time"),
        ("id: a\nrevision: 0.5", "version"),
        ("x: " + "[" * 3000, "front matter"),
    ],
)
def test_what_is_no_document_is_refused_with_a_reason(front, reason):
    with pytest.raises(InputError, match=reason):
        parse_document(f"---\n{front}\n---\ntext\n".encode(), OWNER)


def test_a_line_of_many_blanks_costs_no_more_than_its_length():
    for blank in (" ", "\t", "\r", " \t\r"):
        data = f"---\nid: a\n---\n#{blank * 100_000}x{blank * 100_000}y\n\nz\n".encode()
        document = parse_document(data, OWNER, "a")
        assert document.record.text in ("z", document.tail.strip())


def test_a_front_matter_longer_than_any_fact_needs_is_refused_unread():
    with pytest.raises(InputError, match="front matter: at most"):
        parse_document(b"---\nid: a\n" + b"k: 1\n" * (MAX_FRONT // 5) + b"---\nx\n", OWNER, "a")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=5,
)
keys_of_ours = (
    "format", "kind", "entity", "declared", "revision", "valid_from", "valid_to", "closed_at", "recorded_at", "source",
    "outer", "metadata", "keys", "birth", "seal",
)  # fmt: skip
keys_above = (
    "schemaVersion", "category", "categoryExtension", "topics", "confidence", "status", "user_id", "agent_name",
    "source", "createdAt", "updatedAt", "revision", "consolidatedFrom", "lastConfirmedAt", "confirmationCount",
    "nanomem", "title",
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(keys_of_ours), anything, max_size=3),
    st.dictionaries(st.sampled_from(keys_above), anything, max_size=3),
    st.sampled_from(["a", None]),
)
def test_whatever_a_field_holds_the_document_is_read_or_refused(ours, above, stem):
    data = f"---\n{frontmatter.render({'id': 'a', 'nanomem': ours} | above)}---\n\ntext\n".encode()
    try:
        document = parse_document(data, OWNER, stem)
    except InputError:
        return
    check_record(document.record)
    if stem is not None:
        assert parse_document(written(document.record, document), OWNER, stem).record == document.record


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_times_are_kept_to_the_last_digit(seconds):
    assert time_value(time_text(seconds)) == seconds


def test_times_are_for_people_where_the_calendar_has_them():
    assert time_text(NOON) == "2026-03-10T11:00:00Z"
    assert time_text(NOON + 0.125) == "2026-03-10T11:00:00.125Z"
    assert time_text(1e300) == 1e300
    with pytest.raises(InputError, match="2026-13-01"):
        time_value("2026-13-01T00:00:00Z")
    assert math.isclose(time_value("2026-03-10T12:00:00+01:00"), NOON)

import copy
import dataclasses
import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import InputError
from nanomem_core.records import (
    KINDS,
    MAX_ENTITY,
    RESERVED_METADATA,
    Record,
    Scope,
    check_record,
    clean_metadata,
    new_id,
    new_ids,
    normalize_entity,
    read_share,
)


class TestScope:
    def test_a_scope_is_a_value(self):
        assert Scope("ann") == Scope("ann", "default")
        assert len({Scope("ann"), Scope("ann", "default"), Scope("Ann")}) == 2

    def test_it_is_written_without_the_default_agent(self):
        assert str(Scope("ann")) == "ann"
        assert str(Scope("ann", "bot")) == "ann/bot"

    @pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 1025, "é" * 513, None, 5, b"ann"])
    def test_a_name_that_no_store_can_hold_is_refused(self, name):
        for arguments in ({"user": name}, {"agent": name}):
            with pytest.raises(InputError, match=f"^{next(iter(arguments))}: "):
                Scope(**arguments)

    @pytest.mark.parametrize("name", ["..", "/etc/x", "con", "x" * 1024, "é" * 512, "用户-一", " ", "a\nb"])
    def test_any_other_name_is_accepted(self, name):
        assert Scope(name, name).user == name


class TestRecord:
    def test_a_record_survives_json(self):
        record = Record(
            "a", "漢字", "episode", "city", True, 2, 3, 1.5, 2.5, 3.5, 4.5, "cli", {"user_id": "u", "tags": [1, None]}
        )
        assert Record.from_dict(json.loads(json.dumps(record.to_dict()))) == record
        assert list(record.to_dict()) == [field.name for field in dataclasses.fields(Record)]

    def test_its_dictionary_is_a_copy(self):
        record = Record("a", "b", metadata={"k": 1})
        record.to_dict()["metadata"]["k"] = 2
        assert record.metadata == {"k": 1}

    def test_unknown_and_missing_fields_are_named(self):
        with pytest.raises(InputError, match="unknown field 'colour'; known are id, text, kind"):
            Record.from_dict({"id": "a", "text": "b", "colour": "c"})
        with pytest.raises(InputError, match="'text'"):
            Record.from_dict({"id": "a"})

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("id", ""),
            ("id", "a\0"),
            ("id", 7),
            ("text", None),
            ("text", "half \ud83e of a pair"),
            ("kind", "note"),
            ("entity", "Favourite Colour"),
            ("declared", 1),
            ("revision", -1),
            ("revision", 2**31),
            ("revision", True),
            ("version", 1.0),
            ("valid_from", float("nan")),
            ("valid_from", None),
            ("valid_from", "2026"),
            ("valid_to", float("inf")),
            ("recorded_at", True),
            ("closed_at", "x"),
            ("source", None),
            ("source", "\udfff"),
            ("metadata", []),
            ("metadata", {"a": {1, 2}}),
            ("metadata", {"a": float("nan")}),
            ("metadata", {"a": "\ud800"}),
        ],
    )
    def test_a_malformed_field_is_named(self, field, value):
        with pytest.raises(InputError, match=f"^{field}: "):
            check_record(dataclasses.replace(Record("a", "b"), **{field: value}))

    def test_a_sound_record_is_returned_as_it_is(self):
        record = Record("a", "", valid_from=5, valid_to=None, metadata={"k": ["é", 1, None, True, {"x": 0.5}]})
        assert check_record(record) is record

    def test_metadata_that_contains_itself_is_refused(self):
        loop = {}
        loop["loop"] = loop
        with pytest.raises(InputError, match=r"^metadata: "):
            check_record(Record("a", "b", metadata=loop))

    def test_chains_are_kept_apart_by_user_and_project(self):
        def chain(**metadata):
            return Record("a", "b", entity="city", metadata=metadata).chain

        chains = [chain(), chain(user_id="u"), chain(project="u"), chain(user_id="u", project="p"), chain(user_id="v")]
        assert chains[0] == "city"
        assert len(set(chains)) == 5
        assert chain(user_id="u", other="x") == chain(user_id="u")
        assert Record("a", "b", metadata={"user_id": "u"}).chain is None

    def test_a_record_can_not_be_changed(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            Record("a", "b").text = "c"


class TestCleanMetadata:
    def test_values_become_json_and_the_original_stays(self):
        given = {
            "set": {"b", "a"},
            "tuple": (1, 2),
            5: {"x": frozenset([3])},
            "object": Scope("ann"),
            "nan": float("nan"),
        }
        before = dict(given)
        assert clean_metadata(given) == {
            "set": ["a", "b"],
            "tuple": [1, 2],
            "5": {"x": [3]},
            "object": str(Scope("ann")),
            "nan": "nan",
        }
        assert given == before

    def test_nothing_gives_an_empty_object(self):
        assert clean_metadata(None) == clean_metadata({}) == {}

    @pytest.mark.parametrize("key", sorted(RESERVED_METADATA))
    def test_a_reserved_key_is_refused_with_advice(self, key):
        with pytest.raises(InputError, match=f"the key '{key}' is reserved .*; (pass it as|rename it)"):
            clean_metadata({key: 1})

    def test_every_field_but_entity_is_reserved(self):
        fields = {field.name for field in dataclasses.fields(Record)}
        assert fields - RESERVED_METADATA == {"entity", "metadata"}

    def test_what_is_no_mapping_is_refused(self):
        with pytest.raises(InputError, match="expected a mapping; found list"):
            clean_metadata([("a", 1)])

    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=10,
    )

    @given(st.dictionaries(st.text().filter(lambda key: key not in RESERVED_METADATA), values))
    def test_the_result_is_json_and_stays_the_same_when_cleaned_again(self, metadata):
        cleaned = clean_metadata(metadata)
        assert json.loads(json.dumps(cleaned, allow_nan=False)) == cleaned
        assert clean_metadata(cleaned) == cleaned


class TestNormalizeEntity:
    @pytest.mark.parametrize(
        ("name", "normal"),
        [
            ("Favourite Colour", "favourite_colour"),
            ("  job--title! ", "job_title"),
            ("e-mail", "e_mail"),
            ("職業", "職業"),
            ("Ｃｉｔｙ", "city"),
            ("STRASSE", "strasse"),
            ("straße", "strasse"),
            ("Город", "город"),
            ("पता", "पता"),
            ("e\u0301tat", "état"),
            ("2nd_phone", "2nd_phone"),
        ],
    )
    def test_one_spelling_for_each_name(self, name, normal):
        assert normalize_entity(name) == normal

    @pytest.mark.parametrize("name", ["", "_", "?!", "🫖", "x" * (MAX_ENTITY + 1), None, 5])
    def test_a_name_without_letters_or_too_long_is_refused(self, name):
        with pytest.raises(InputError, match=r"^entity: "):
            normalize_entity(name)

    @given(st.text(max_size=40))
    def test_a_normal_form_is_its_own_normal_form(self, name):
        try:
            normal = normalize_entity(name)
        except InputError:
            return
        assert normalize_entity(normal) == normal
        assert not re.search(r"^_|__|_$|\s", normal)


def test_ids_are_fresh_and_sort_by_age():
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)
    times = [id[:12] for id in ids]
    assert times == sorted(times)


def test_ids_made_together_are_as_those_made_one_by_one():
    ids = list(new_ids(1000))
    assert len(set(ids)) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)
    assert list(new_ids(0)) == []


def test_a_record_can_be_copied_pickled_and_replaced_but_not_changed():
    record = Record("a", "text", metadata={"x": [1]}, entity="city", valid_to=5.0)
    for other in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert other == record
        assert type(other) is Record
    changed = dataclasses.replace(record, text="new")
    assert (changed.text, changed.valid_to, record.text) == ("new", 5.0, "text")
    assert [f.name for f in dataclasses.fields(record)] == list(record.to_dict())
    for name in ("id", "metadata"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, "x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        del record.text


def test_records_without_metadata_do_not_share_it():
    first, second = Record("a", "text"), Record("b", "text")
    assert first.metadata == {}
    assert first.metadata is not second.metadata


def test_kinds_are_the_five_that_are_documented():
    assert KINDS == ("message", "episode", "fact", "summary", "purged")


def test_another_scope_keeps_what_is_not_named():
    ann = Scope("ann", "helper")
    assert ann.other() is ann
    assert ann.other(user="bob") == Scope("bob", "helper")
    assert ann.other(agent="tutor") == Scope("ann", "tutor")
    with pytest.raises(InputError):
        ann.other(user="")
    assert sorted([Scope("b"), ann, Scope("ann")]) == [Scope("ann"), ann, Scope("b")]


@pytest.mark.parametrize(
    ("value", "share"),
    [(0, 0.0), (1, 1.0), (0.25, 0.25), (True, None), (-0.1, None), (1.1, None), ("1", None), (None, None)],
)
def test_a_share_is_a_number_from_0_to_1(value, share):
    assert read_share(value) == share

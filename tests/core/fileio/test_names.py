import os
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nanomem_core.errors import InputError, StorageError
from nanomem_core.fileio.names import MAX_COMPONENT, confined, decode_name, encode_name
from nanomem_core.testing.samples import HOSTILE_NAMES

HOSTILE = [
    *HOSTILE_NAMES,
    "CON",
    "com1.tar.gz",
    "lpt9",
    ".hidden",
    "a=b",
    "~root",
    "ß",
    "ss",
    "ſ",
    "s",
    "\u212a",
    "k",
    "ﬁ",
    "fi",
    "²",
    "2",
    "^a",
    "\ud55c",
    "\u1112\u1161\u11ab",
]
NAMES = st.text(min_size=1, max_size=60).filter(lambda name: "\0" not in name)
ALIKE = st.text(st.sampled_from("aAßsSſkK\u212aéÉe\u0301EiIıİ.^%=2e/ ~"), min_size=1, max_size=8)


def as_on_disk(component):
    """What a disk that merges case and forms of letters compares."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", component).casefold())


@pytest.mark.parametrize(
    "name",
    [
        "ann",
        "ann@example.org",
        "用户-一",
        "hi..there",
        "user_1",
        "a+b",
        "ünïcode",
        "élan",
        "пользователь",
        "がぎぐ",
        "한국어",
    ],
)
def test_a_common_name_is_its_own_component(name):
    assert encode_name(name) == name


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("Ann Lee", "^ann%20^lee"),
        ("Éric", "^éric"),
        ("a/b", "a%2fb"),
        ("..", "%2e%2e"),
        (".hidden", "%2ehidden"),
        ("trailing.", "trailing%2e"),
        ("con", "%63on"),
        ("nul.md", "%6eul.md"),
        ("CON", "^c^o^n"),
        ("console", "console"),
        ("100%", "100%25"),
        ("🫖", "%f0%9f%ab%96"),
        ("Straße", "^stra%c3%9fe"),
        ("e\u0301", "e%cc%81"),
    ],
)
def test_other_names_are_written_so_that_they_can_be_guessed(name, component):
    assert encode_name(name) == component
    assert decode_name(component) == name


@given(NAMES | ALIKE)
@example("%" * 60)
@example("X" * 60)
@example("\u1100\u1161")
def test_a_component_is_safe_everywhere_and_leads_back(name):
    component = encode_name(name)
    size = len(component.encode())
    assert 0 < size <= MAX_COMPONENT
    assert not re.search(r'[\x00-\x20\x7f/\\:*?"<>|~#!A-Z]', component)
    assert component.strip(". ") == component
    assert not re.match(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)", component)
    assert unicodedata.is_normalized("NFC", component)
    assert decode_name(component) == (None if "=" in component else name)
    assert decode_name(unicodedata.normalize("NFD", component)) == (None if "=" in component else name)


@given(ALIKE, ALIKE)
def test_two_names_never_share_a_component_on_any_disk(name, other):
    assert (as_on_disk(encode_name(name)) == as_on_disk(encode_name(other))) == (name == other)


def test_hostile_names_are_all_apart():
    components = [encode_name(name) for name in HOSTILE]
    assert len({as_on_disk(component) for component in components}) == len(HOSTILE) == len(set(HOSTILE))


@pytest.mark.parametrize("length", [119, 120, 121, 300, 1024])
def test_a_long_name_is_cut_and_kept_apart_by_a_digest(length):
    names = ["x" * (length - 1) + end for end in "xyz"]
    components = [encode_name(name) for name in names]
    assert len(set(components)) == 3
    for name, component in zip(names, components, strict=True):
        assert len(component) <= MAX_COMPONENT
        if length <= MAX_COMPONENT:
            assert component == name
        else:
            assert re.fullmatch("x{87}=[0-9a-f]{32}", component)
            assert decode_name(component) is None


def test_a_long_name_is_never_cut_inside_a_letter():
    for name in ("é" * 100, "/" * 100, "用" * 100, "aé/" * 40):
        assert decode_name(encode_name(name)) is None
        assert re.fullmatch(r"(?:%[0-9a-f]{2}|[^%=])*=[0-9a-f]{32}", encode_name(name))


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 1025])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(InputError, match=r"^name: "):
        encode_name(name)


@pytest.mark.parametrize(
    "component",
    ["", "A", "a b", ".", "..", "con", "%zz", "%2", "%61", "%2E", "^", "^^a", "^1", "a/b", "x=", "=" + "0" * 32, "%ff"],
)
def test_what_was_never_encoded_is_refused(component):
    with pytest.raises(InputError, match="is no encoded name"):
        decode_name(component)


@given(st.text(max_size=12))
def test_what_can_be_read_is_what_would_be_written(component):
    try:
        name = decode_name(component)
    except InputError:
        return
    assert name is not None
    assert encode_name(name) == unicodedata.normalize("NFC", component)


class TestConfined:
    def test_parts_are_joined_below_the_root(self, tmp_path):
        assert confined(tmp_path, "ann", "facts", "a.md") == tmp_path / "ann" / "facts" / "a.md"
        assert confined(os.fspath(tmp_path)) == tmp_path

    @pytest.mark.parametrize("part", ["", ".", "..", "/etc", "a/b", "a\\b", "C:", "a:stream", "a\0", "../x"])
    def test_a_part_that_could_leave_the_root_is_refused(self, tmp_path, part):
        for parts in ((part,), ("ann", part), (part, "ann")):
            with pytest.raises(InputError, match="expected the name of one entry"):
                confined(tmp_path, *parts)

    def test_every_encoded_name_is_accepted(self, tmp_path):
        for name in HOSTILE:
            assert confined(tmp_path, encode_name(name)).parent == tmp_path

    def test_a_link_on_the_way_is_refused(self, tmp_path):
        root, outside = tmp_path / "root", tmp_path / "outside"
        root.mkdir()
        outside.mkdir()
        (outside / "a").write_text("kept")
        (root / "folder").symlink_to(outside, target_is_directory=True)
        (root / "file").symlink_to(outside / "a")
        (root / "dangling").symlink_to(outside / "absent")
        for parts in (("folder",), ("folder", "a"), ("file",), ("dangling",), ("folder", "new", "deep")):
            with pytest.raises(StorageError, match="is a link, which is never followed"):
                confined(root, *parts)

    def test_the_root_itself_may_be_a_link(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
        assert confined(tmp_path / "link", "a") == tmp_path / "link" / "a"

    def test_what_lies_beyond_a_file_is_left_to_the_system(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError):
            confined(tmp_path, "file", "a")

"""The options of a component are checked and converted by the annotations of its constructor."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import pytest
from pydantic import Field, SecretStr, TypeAdapter, ValidationError

from nanomem_core.config.model import component
from nanomem_core.errors import ConfigError
from nanomem_core.registry.options import Options

if TYPE_CHECKING:
    from nowhere import Elsewhere


class Talks(Protocol):
    def talk(self) -> str: ...


class Part:
    def __init__(
        self,
        root: str | os.PathLike[str],
        dim: int = 64,
        *,
        ratio: float = 0.5,
        mode: Literal["fast", "exact"] = "fast",
        strict: bool = False,
        key: SecretStr | None = None,
        api_key: str | None = None,
        names: list[str] | None = None,
        batch: Annotated[int, Field(ge=1)] = 16,
        friend: Talks | None = None,
        elsewhere: Elsewhere | None = None,
        anything=None,
        schema: str = "public",
        model_config: str = "",
    ) -> None: ...


def check(**options: Any) -> dict[str, Any]:
    return Options(Part).check({"root": "m", **options}, "storage 'part'")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("dim", "64", 64),
        ("dim", 64.0, 64),
        ("ratio", "0.25", 0.25),
        ("ratio", 1, 1.0),
        ("strict", "1", True),
        ("strict", "off", False),
        ("mode", "exact", "exact"),
        ("names", ("a", "b"), ["a", "b"]),
        ("batch", "3", 3),
        ("anything", "64", "64"),
        ("elsewhere", "x", "x"),
        ("schema", "own", "own"),
        ("model_config", "x", "x"),
        ("root", Path("x"), Path("x")),
        ("api_key", SecretStr("s"), "s"),
        ("key", None, None),
    ],
)
def test_a_value_is_converted_to_its_annotation(name: str, given: Any, value: Any) -> None:
    checked = check(**{name: given})
    assert checked[name] == value
    assert type(checked[name]) is type(value)


@pytest.mark.parametrize("given", ["s3cret", SecretStr("s3cret")])
def test_a_secret_arrives_as_a_secret_where_the_constructor_wants_one(given: Any) -> None:
    key = check(key=given)["key"]
    assert isinstance(key, SecretStr)
    assert key.get_secret_value() == "s3cret"


def test_what_the_settings_hide_arrives_as_it_is_at_any_depth() -> None:
    url = "http://ann:s3cret@host"
    spec = component({"use": "part", "root": url, "headers": {"X": "s3cret"}, "anything": [{"token": "s3cret"}, url]})
    given = {name: value for name, value in spec.items() if name not in ("use", "headers")}
    assert "s3cret" not in repr(spec)
    assert check(**given) == {"root": url, "anything": [{"token": "s3cret"}, url]}
    assert check(anything=spec["headers"])["anything"] == {"X": "s3cret"}


def test_a_wrong_value_is_quoted_without_the_secrets_in_it() -> None:
    with pytest.raises(ConfigError, match=r"found 'http://ann:.*@host") as caught:
        check(dim="http://ann:s3cret@host/?code=s3cret")
    assert "s3cret" not in str(caught.value)


def test_options_that_are_not_given_stay_the_constructors_own() -> None:
    assert check() == {"root": "m"}


def test_an_object_is_passed_on_as_it_is() -> None:
    friend = object()
    assert check(friend=friend)["friend"] is friend


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("dim", "many", "valid integer, unable to parse string as an integer; found 'many'"),
        ("dim", 1.5, "found 1.5"),
        ("mode", "slow", "'fast' or 'exact'; found 'slow'"),
        ("batch", 0, "greater than or equal to 1; found 0"),
        ("schema", 5, "valid string; found 5"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_was_expected_and_found(name: str, given: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(**{name: given})
    assert str(caught.value).startswith(f"storage 'part', option {name!r}: ")
    assert reason in str(caught.value)
    assert caught.value.key == name


def test_a_wrong_secret_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        check(api_key=["s3cret"])
    cause: BaseException | None = caught.value
    while cause is not None:
        assert "s3cret" not in str(cause)
        cause = cause.__cause__


def test_an_unknown_option_is_an_error_with_the_nearest_name_and_all_names() -> None:
    with pytest.raises(ConfigError, match=r"storage 'part' has no option 'dimm'; did you mean 'dim'\?") as caught:
        check(dimm=3)
    assert "anything, api_key, batch, dim" in str(caught.value)
    assert caught.value.key == "dimm"


def test_a_required_option_must_be_given() -> None:
    with pytest.raises(ConfigError, match="storage 'part', option 'root': is required"):
        Options(Part).check({}, "storage 'part'")


def test_a_constructor_without_options_takes_none() -> None:
    class Bare:
        pass

    assert Options(Bare).check({}, "tagger 'bare'") == {}
    with pytest.raises(ConfigError, match=r"its options: none"):
        Options(Bare).check({"x": 1}, "tagger 'bare'")


def test_a_constructor_that_takes_further_options_gets_them_unchecked() -> None:
    class Open:
        def __init__(self, dim: int = 3, **kwargs: Any) -> None: ...

    assert Options(Open).open
    given = {"dim": "4", "other": "5", "deep": {"a": 1}, "token": SecretStr("s")}
    assert Options(Open).check(given, "x") == {"dim": 4, "other": "5", "deep": {"a": 1}, "token": "s"}


def test_a_dataclass_is_a_component_like_any_other() -> None:
    @dataclass
    class Made:
        path: Path
        dim: int = 3

    assert Options(Made).check({"path": "x", "dim": "4"}, "x") == {"path": Path("x"), "dim": 4}


def test_an_inherited_constructor_counts() -> None:
    class Child(Part):
        pass

    assert [option.name for option in Options(Child).declared] == [option.name for option in Options(Part).declared]


def test_what_an_option_is_can_be_read() -> None:
    options = {option.name: option for option in Options(Part).declared}
    assert [name for name, option in options.items() if option.required] == ["root"]
    assert [name for name, option in options.items() if option.secret] == ["key", "api_key"]
    assert [name for name, option in options.items() if option.is_path] == ["root"]
    assert options["dim"].default == 64
    assert options["dim"].type_name == "int"
    assert options["elsewhere"].annotation is Any
    assert options["friend"].type_name == "Any"


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Path, True),
        (Path | None, True),
        (str | os.PathLike[str], True),
        (Annotated[Path, Field()], True),
        (str, False),
        (list[Path], False),
        (Any, False),
    ],
)
def test_a_path_is_recognised_by_its_annotation(annotation: Any, expected: bool) -> None:
    class Holder:
        def __init__(self, where: Any = None) -> None: ...

    Holder.__init__.__annotations__["where"] = annotation
    [option] = Options(Holder).declared
    assert option.is_path is expected


def test_relative_paths_start_from_the_data_dir_and_absolute_ones_stay(tmp_path: Path) -> None:
    class Holder:
        def __init__(self, root: Path, cache: Path | None = None, log: str | os.PathLike[str] = "log") -> None: ...

    checked = Options(Holder).check({"root": "m"}, "x", tmp_path)
    assert checked == {"root": tmp_path / "m", "log": tmp_path / "log"}
    assert Options(Holder).check({"root": str(tmp_path / "m")}, "x", Path("/elsewhere"))["root"] == tmp_path / "m"
    assert Options(Holder).check({"root": "~/m"}, "x", tmp_path)["root"] == Path.home() / "m"


def test_opening_a_vault_with_its_defaults_waits_neither_for_pydantic_nor_for_yaml(tmp_path: Path) -> None:
    code = (
        "import sys; from nanomem_core import Vault; vault = Vault('memory.dat'); vault.search('tea'); vault.close(); "
        "print([m for m in ('httpx', 'pydantic', 'rich', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("value", ["fast", "64", 64, 64.0, True, None, Path("x"), b"x", ["a"], {"a": 1}, 1.5])
@pytest.mark.parametrize(
    "annotation",
    [int, float, bool, str, str | None, Path, Literal["fast", 64], list[str] | None, Annotated[int, Field(ge=65)], Any],
)
def test_a_value_that_needs_no_conversion_is_what_pydantic_makes_of_it(annotation: Any, value: Any) -> None:
    class Holder:
        def __init__(self, option: Any) -> None: ...

    Holder.__init__.__annotations__["option"] = annotation
    try:
        expected = TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        with pytest.raises(ConfigError):
            Options(Holder).check({"option": value}, "x")
    else:
        found = Options(Holder).check({"option": value}, "x")["option"]
        assert (found, type(found)) == (expected, type(expected))

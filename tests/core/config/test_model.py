"""The settings themselves, and what of them may be shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from nanomem_core.config.model import PluginSettings, SecretUrl, Settings, masked
from nanomem_core.masking import MASK, is_secret


def test_defaults_need_no_validation() -> None:
    # Which is skipped where nothing else is set.
    made, checked = Settings.model_construct(), Settings()
    assert made == checked
    assert repr(made) == repr(checked)


def test_settings_can_not_be_changed() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.data_dir = Path("x")  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        settings.search.top_k = 3  # type: ignore[misc]


def test_settings_made_by_hand_refuse_what_is_unknown() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Settings.model_validate({"storag": "arena"})


def test_a_component_may_be_a_name_alone() -> None:
    settings = Settings.model_validate({"storage": "jsonl", "taggers": ["keyword", {"use": "colour", "shade": 3}]})
    assert settings.storage == {"use": "jsonl"}
    assert settings.taggers == ({"use": "keyword"}, {"use": "colour", "shade": 3})


@pytest.mark.parametrize("value", [3, "", {}, {"use": ""}, {"use": 3}, {"root": "m"}, ["a"]])
def test_what_names_no_component_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="expected the name of a component"):
        Settings.model_validate({"storage": value})


@pytest.mark.parametrize(
    ("given", "names"),
    [("", ()), ("a", ("a",)), (" a, b ,", ("a", "b")), ([], ()), (["a"], ("a",)), (None, None)],
)
def test_names_are_a_list_or_a_text_with_commas(given: Any, names: Any) -> None:
    assert PluginSettings.model_validate({"load": given}).load == names


SECRETS = ["api_key", "apikey", "API_KEY", "openai_api_key", "token", "hf_token", "password", "db-password", "secret"]
SECRETS += ["client_secret", "access_key", "passphrase", "Authorization", "credentials", "headers"]
PLAIN = ["max_tokens", "tokenizer", "key", "keys", "path", "secretary", "password_file", "keyspace", "monkey"]


@pytest.mark.parametrize("name", SECRETS)
def test_a_name_gives_a_secret_away(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", PLAIN)
def test_a_name_that_only_looks_alike_does_not(name: str) -> None:
    assert not is_secret(name)


def test_secrets_of_components_do_not_show_however_settings_are_printed() -> None:
    spec = {
        "use": "openai",
        "api_key": "sk-1",
        "base_url": "https://ann:sk-1@host/v1?sig=sk-1",
        "proxy": "http://sk-1@proxy",
        "headers": {"X-Gateway": "sk-1", "X-Number": 5319, "more": ["sk-1"]},
        "password": 5319,
        "fallbacks": [{"base_url": "https://ann:sk-1@host", "token": "sk-1"}],
    }
    settings = Settings.model_validate(
        {
            **dict.fromkeys(("storage", "embedder", "segmenter", "generator"), spec),
            "taggers": [spec],
            "plugins": {"options": {"cache": spec}},
        }
    )
    assert settings.generator is not None
    assert settings.generator["api_key"] == SecretStr("sk-1")
    assert settings.generator["base_url"] == SecretUrl("https://ann:sk-1@host/v1?sig=sk-1")
    for shown in (
        repr(settings),
        str(settings),
        str(dict(settings)),
        str(settings.model_dump()),
        str(settings.model_dump(mode="json")),
        settings.model_dump_json(),
        repr(settings.generator),
        json.dumps(masked(settings)),
    ):
        assert "sk-1" not in shown
        assert "5319" not in shown
        assert f"https://ann:{MASK}@host/v1?sig={MASK}" in shown, "what is no secret is seen"


def test_masking_keeps_everything_but_the_secrets() -> None:
    tree = {
        "use": "openai",
        "key": SecretStr("s"),
        "api_key": "s",
        "token": None,
        "max_tokens": 5,
        "own": "s",
        "headers": {"Authorization": "s", "X": "y"},
        "path": Path("a"),
        "list": ["x", {"password": "s"}],
    }
    assert masked(tree, {"own"}) == {
        "use": "openai",
        "key": MASK,
        "api_key": MASK,
        "token": None,
        "max_tokens": 5,
        "own": MASK,
        "headers": {"Authorization": MASK, "X": MASK},
        "path": "a",
        "list": ["x", {"password": MASK}],
    }


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@host:5432/db", f"postgresql://ann:{MASK}@host:5432/db"),
        ("redis://:s3cret@host", f"redis://:{MASK}@host"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("http://host/x", "http://host/x"),
        ("ann:pw@host", "ann:pw@host"),
        ("https://host/v1?api-version=1&code=s3cret", f"https://host/v1?api-version=1&code={MASK}"),
        ("https://host/v1?api_key=s3cret#x", f"https://host/v1?api_key={MASK}#x"),
        ("https://host/v1?color=s3cret&s3cret", f"https://host/v1?color={MASK}&{MASK}"),
        ("https://s3cret@host/v1", f"https://{MASK}@host/v1"),
        ("https://ann:s3/cr?e#t@host/v1", f"https://ann:{MASK}@host/v1"),
        ("https://ann:s3@cret@host/v1", f"https://ann:{MASK}@host/v1"),
        ("https://ann:5319@host:80/v1", f"https://ann:{MASK}@host:80/v1"),
        ("what?key=value", "what?key=value"),
    ],
)
def test_a_password_in_a_url_is_masked(url: str, shown: str) -> None:
    assert masked({"dsn": url}) == {"dsn": shown}

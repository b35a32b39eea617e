import pytest

from nanomem_core.errors import ConfigError
from nanomem_core.http import complete_url, parse_url, provider_of


@pytest.mark.parametrize(
    ("base", "root", "name", "complete"),
    [
        ("http://h:1", "/v1", "x", "http://h:1/v1/x"),
        ("http://h:1/", "/v1", "x", "http://h:1/v1/x"),
        ("http://h/v1", "/v1", "x", "http://h/v1/x"),
        ("http://h/v1/", "/v1", "x", "http://h/v1/x"),
        ("http://h/a/v1", "/v1", "x", "http://h/a/v1/x"),
        ("http://h/a", "/v1", "x", "http://h/a/v1/x"),
        ("http://h/a", "", "x/y", "http://h/a/x/y"),
        ("http://h/any/x", "/v1", "x", "http://h/any/x"),
        ("http://h/any/x?api-version=1", "/v1", "x", "http://h/any/x?api-version=1"),
        ("http://h?api-version=1", "/v1", "x", "http://h/v1/x?api-version=1"),
        ("https://[::1]:8443", "/api", "chat", "https://[::1]:8443/api/chat"),
    ],
)
def test_a_base_url_is_completed_and_a_full_one_is_kept(base, root, name, complete):
    assert complete_url(parse_url(base), root, name).geturl() == complete


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "h", "ftp://h/x", "http://", "http://h:port/v1", "http://h:99999", "http://[::1"]
)
def test_what_is_no_url_is_a_clear_error(url):
    with pytest.raises(
        ConfigError, match=r"base_url: expected a URL such as http://localhost:8080/v1; found"
    ) as caught:
        parse_url(url)
    assert caught.value.key == "base_url"


def test_an_error_about_a_url_does_not_show_its_password():
    with pytest.raises(ConfigError) as caught:
        parse_url("http://ann:secret-word@h:port/v1?key=secret-word")
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("https://api.anthropic.com", "anthropic"),
        ("https://gateway.example/claude/v1/messages", "anthropic"),
        ("https://notanthropic.com", "ollama"),
        ("https://anthropic.com.example", "ollama"),
        ("https://h/v1/chat/completions", "openai"),
        ("https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", "openai"),
        ("https://r.openai.azure.com", "openai"),
        ("http://h/v1", "openai"),
        ("http://localhost:1234", "openai"),
        ("http://localhost:8000", "openai"),
        ("http://localhost:11435", "openai"),
        ("http://localhost:11434", "ollama"),
        ("http://host-8080.example", "ollama"),
        ("http://localhost:18080", "ollama"),
        ("http://h/8080", "ollama"),
        ("http://h/api/chat", "ollama"),
    ],
)
def test_the_provider_is_told_by_host_path_and_port(url, provider):
    assert provider_of(url) == provider


def test_a_malformed_port_is_an_error_and_no_provider():
    with pytest.raises(ConfigError):
        provider_of("http://localhost:80a0")

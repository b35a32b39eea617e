"""The plugin as settings choose it, and where its key does not appear."""

import json
import logging
import os

import pytest

from nanomem_core import Memory
from nanomem_core.cli import main
from nanomem_core.errors import ConfigError, EmbedderError
from tests import providers
from tests.scripted_server import Reply, ScriptedServer


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("NANOMEM_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(server, **embedder):
    chosen = {"use": "openai", "model": "emb", "base_url": server.url} | embedder
    return json.dumps({"embedder": chosen, "taggers": []})


def test_settings_and_variables_choose_model_url_and_key(own_folder, monkeypatch):
    monkeypatch.setenv("NANOMEM_EMBEDDER__API_KEY", providers.KEY)
    monkeypatch.setenv("NANOMEM_EMBEDDER__BATCH_SIZE", "2")
    with ScriptedServer(providers.openai) as server:
        (own_folder / "nanomem.yaml").write_text(settings(server, dim=12), encoding="utf-8")
        with Memory.open("nanomem.yaml") as memory:
            memory.add_many(["Lives in Oslo", "Works at Alder", "Likes tea"])
            assert [hit.text for hit in memory.search("Likes tea", mode="vector", top_k=1)] == ["Likes tea"]
        assert [len(request.body["input"]) for request in server.received] == [2, 1, 1]


def test_an_option_with_a_wrong_value_is_named(own_folder):
    for wrong in ({"timeout": "soon"}, {"encoding_format": "hex"}, {"base_url": "http://h:port"}, {"modell": "x"}):
        (own_folder / "nanomem.yaml").write_text(json.dumps({"embedder": {"use": "openai", **wrong}}), encoding="utf-8")
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Memory.open("nanomem.yaml")


def test_no_secret_is_in_logs_errors_stats_dumps_or_files(own_folder, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    secrets = {"key": providers.KEY, "header": "header-secret-1", "query": "query-secret-1", "password": "pass-word-1"}
    working = True

    def script(request):
        if working:
            assert request.headers["x-team"] == secrets["header"]
            assert secrets["query"] in request.query
            return providers.openai(request)
        return Reply({"error": {"message": f"no: {dict(request.headers)} {request.query}"}}, 400)

    told = []
    with ScriptedServer(script) as server:
        base = server.url.replace("://", f"://ann:{secrets['password']}@") + f"/v1?code={secrets['query']}"
        text = settings(server, base_url=base, api_key=providers.KEY, headers={"X-Team": secrets["header"]})
        (own_folder / "nanomem.yaml").write_text(text, encoding="utf-8")
        with Memory.open("nanomem.yaml") as memory:
            memory.add("Lives in Oslo")
            told += [repr(memory.stats()), repr(memory.embedder), repr(vars(memory.embedder.endpoint.__class__))]
            told += [repr(memory.embedder.endpoint), memory.embedder.id]
            working = False
            with pytest.raises(EmbedderError) as caught:
                memory.add("Works at Alder")
            told += [str(caught.value), repr(vars(caught.value))]
    for arguments in (["config", "show"], ["config", "show", "--origin"], ["config", "show", "--json"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert not left.value.code
    told += [*capsys.readouterr(), caplog.text]
    files = [path for path in own_folder.rglob("*") if path.is_file() and path.name != "nanomem.yaml"]
    assert files
    everything = "\n".join(told).encode() + b"".join(path.read_bytes() for path in files)
    for secret in secrets.values():
        assert secret.encode() not in everything

"""Folders as DeerMem leaves them, and edits as people make them."""

import hashlib
import itertools
import json
import os

from nanomem_core.records import Record, Scope
from nanomem_core.testing.samples import NOON
from nanomem_plugins.markdown.storage import MarkdownStorage

ANN = Scope("ann")


def opened(root, **options):
    return MarkdownStorage(root, **{"check": "always", **options})


def fact(id, text=None, **fields):
    return Record(id, f"text of {id}" if text is None else text, **{"valid_from": NOON, "recorded_at": NOON, **fields})


def fact_path(root, id, user="ann", agent="__default__", place="facts"):
    shard = hashlib.sha256(id.encode()).hexdigest()[:2]
    return root / "users" / user / "agents" / agent / place / shard / f"{id}.md"


def deermem_fact(id, content="Project uses Python 3.12.", user="ann", agent="__default__", **fields):
    """A fact file in the form in which DeerMem writes it."""
    values = {
        "category": "constraint",
        "confidence": "0.95",
        "createdAt": "'2026-07-19T00:00:00Z'",
        "updatedAt": "'2026-07-19T00:00:00Z'",
        "revision": "1",
        "title": "Runtime constraint",
        **fields,
    }
    title = values.pop("title")
    lines = "".join(f"{key}: {value}\n" for key, value in values.items())
    return (
        f"---\nid: {id}\nschemaVersion: 2\n{lines}topics:\n- python\n- runtime\nstatus: active\nuser_id: {user}\n"
        f"agent_name: {agent}\nsource:\n  type: conversation\n  threadId: thread_123\nconsolidatedFrom: []\n---\n\n"
        f"# {title}\n\n{content}\n"
    ).encode()


def write_fact(root, id, data=None, **options):
    user, agent = options.get("user", "ann"), options.get("agent", "__default__")
    path = fact_path(root, id, user, agent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(deermem_fact(id, **options) if data is None else data)
    return path


def write_manifest(root, revision=1, **sections):
    folder = root / "users" / "ann"
    folder.mkdir(parents=True, exist_ok=True)
    content = {"version": "2.0", "revision": revision, "lastUpdated": "2026-07-19T00:00:00Z", "user": {}, "history": {}}
    (folder / "memory.json").write_text(json.dumps(content | sections, ensure_ascii=False, indent=2), "utf-8")


def edit(path, old, new):
    """Change a file in place, as a careless editor does."""
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def edit_by_rename(path, old, new):
    """Change a file as most editors do: write another one and rename it."""
    other = path.with_name(path.name + "~")
    other.write_bytes(path.read_bytes().replace(old, new))
    os.replace(other, path)


def texts(storage, scope=ANN):
    return {record.id: record.text for record in storage.scan(scope)}


def failing_from(number, patch):
    """Let every call that changes the disk fail, from the one with that number on; returns the counter of calls."""
    count = itertools.count()

    def failing(real):
        def call(*arguments, **options):
            if next(count) >= number:
                raise OSError(5, "Input/output error")
            return real(*arguments, **options)

        return call

    for name in ("replace", "fsync", "unlink", "write", "pwrite", "rmdir"):
        patch.setattr(os, name, failing(getattr(os, name)))
    return count

"""Files as Nemori leaves them, and a reader that reads as Nemori v0.1.1 does."""

import json
from datetime import datetime

from nanomem_core.changes import Put
from nanomem_core.records import Record, Scope

ANA = Scope("ana")
NOON = 1_773_140_400.0

EPISODE = {
    "episode_id": "e-1",
    "user_id": "ana",
    "title": "Rome trip",
    "content": "On 2024-05-02 Ana flew to Rome – 漢字.",
    "original_messages": [
        {"message_id": "m-1", "role": "user", "content": "Off!", "timestamp": "2024-05-02T10:00:00", "metadata": {}}
    ],
    "message_count": 1,
    "boundary_reason": "Batch segmentation (group 1/2)",
    "created_at": "2024-05-03T08:00:00",
    "timestamp": "2024-05-02T10:00:00",
    "metadata": {"merged_from": ["e-0"]},
    "tags": ["travel"],
}
FACT = {
    "memory_id": "f-1",
    "user_id": "ana",
    "content": "Ana is vegetarian",
    "knowledge_type": "knowledge",
    "created_at": "2024-05-02T10:00:00",
    "updated_at": None,
    "source_episodes": ["e-1"],
    "confidence": 0.9,
    "metadata": {"generation_method": "prediction_correction"},
    "tags": [],
    "revision_count": 1,
}
EPISODE_2 = {
    "id": "e-2",
    "user_id": "ana",
    "agent_id": "default",
    "title": "Job",
    "content": "Ana began at Alder.",
    "source_messages": [{"role": "user", "content": "New job!", "timestamp": "2026-01-01T00:00:00+00:00"}],
    "embedding": [0.5, 0.25],
    "metadata": {"boundary_reason": "topic"},
    "created_at": "2026-01-01T02:00:00+02:00",
    "updated_at": "2026-01-01T00:00:00+00:00",
}
FACT_2 = {
    "id": "f-2",
    "user_id": "ana",
    "agent_id": "default",
    "content": "Ana works at Alder",
    "memory_type": "career",
    "embedding": [1, 2],
    "source_episode_id": "e-2",
    "confidence": 1.0,
    "metadata": {},
    "created_at": "2026-01-01T02:00:00+02:00",
    "updated_at": "2026-01-02T02:00:00+02:00",
}


def write_lines(path, *items, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(item, ensure_ascii=False) for item in items) + end, encoding="utf-8")


def lines(path):
    """Every line of a file, each of which must be one JSON object."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    assert all(isinstance(item, dict) for item in found)
    return found


NEMORI_KEYS = {"episode": list(EPISODE), "fact": list(FACT)}


def as_nemori(path, kind):
    """What Nemori v0.1.1 makes of a file: known keys only, times parsed, metadata kept whole."""
    required = {
        "episode": ("title", "content", "original_messages", "message_count", "boundary_reason"),
        "fact": ("content", "knowledge_type", "user_id"),
    }
    found = []
    for item in lines(path):
        assert all(key in item for key in required[kind])
        datetime.fromisoformat(item["created_at"])
        for key in ("timestamp", "updated_at"):
            if item.get(key):
                datetime.fromisoformat(item[key])
        found.append({key: item[key] for key in NEMORI_KEYS[kind] if key in item})
    return found


def rewritten_by_nemori(path, kind, change):
    """Let Nemori write a file anew, with `change` made to each item."""
    items = as_nemori(path, kind)
    for item in items:
        change(item)
    write_lines(path, *items)


def fact(id, text, **fields):
    return Put(Record(id, text, **{"valid_from": NOON, "recorded_at": NOON, **fields}))


def texts(storage, scope=ANA):
    return [record.text for record in storage.scan(scope)]


def below(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}

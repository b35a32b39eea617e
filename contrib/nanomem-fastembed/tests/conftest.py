"""A model that is small enough to be made here, and is run by the real runtime and tokenizer all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest

WORDS = ("[PAD]", "[UNK]", "[SEP]", "cat", "kitten", "car", "red", "green", "the", "word")
LETTERS = tuple(f"{joined}{letter}" for letter in ascii_lowercase for joined in ("", "##"))
VOCABULARY = (*WORDS, *LETTERS)
WIDTH = 4
MakeModel = Callable[..., Path]


def _weights(seed: int, quantised: bool) -> bytes:
    """An ONNX model that looks each token up in a table, as bytes."""
    from onnx import TensorProto, checker, helper, numpy_helper

    table = np.random.default_rng(seed).normal(size=(len(VOCABULARY), WIDTH)).astype(np.float32)
    table[WORDS.index("kitten")] = table[WORDS.index("cat")] + 0.1
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["found"])]
    if quantised:
        nodes += [
            helper.make_node("DynamicQuantizeLinear", ["found"], ["q", "scale", "zero"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["last_hidden_state"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["found"], ["last_hidden_state"]))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", WIDTH])]
    graph = helper.make_graph(nodes, "table", inputs, outputs, [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    checker.check_model(model)
    return bytes(model.SerializeToString())


def _made(folder: Path, *, seed: int = 0, quantised: bool = False, pooling: Any = "mean", place: str = "") -> Path:
    """A folder with a model of `WORDS`, and of others letter by letter; `pooling` None leaves out what would tell."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    weights = folder / (place or "model.onnx")
    weights.parent.mkdir(parents=True, exist_ok=True)
    weights.write_bytes(_weights(seed, quantised))
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"model_max_length": 16, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        modes = {f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token", "mean_tokens")}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes), encoding="utf-8")
    return folder


@pytest.fixture
def make_model() -> MakeModel:
    """Makes a folder with a model; see `_made` for what can be asked of it."""
    return _made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return _made(tmp_path / "model")

"""ColBERT's checkpoints in the layouts of its authors and of PyLate: the vectors are those of transformers by hand."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Cli
from tiny_checkpoints import DOCUMENTS, TEXTS, bert_config, save_bert_tokenizer, save_modules, torch, transformers
from vizsla import Index, Model, VizslaError, parse_model
from vizsla.index import verify
from vizsla.models import ColBERT

pytestmark = pytest.mark.usefixtures("cache")
WIDTH = 12
QUERIES = ["dogs, birds?", "a vehicle tax", "x " * 50]
METADATA = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 16, "doc_maxlen": 24}


def save_arrays(folder: Path, arrays: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    save_file({name: array.detach().contiguous() for name, array in arrays.items()}, folder / "model.safetensors")


@pytest.fixture
def bert() -> Any:
    torch.manual_seed(0)
    return transformers.BertModel(bert_config(initializer_range=0.5), add_pooling_layer=False).eval()


@pytest.fixture
def linear() -> Any:
    return torch.randn(WIDTH, 16, generator=torch.Generator().manual_seed(1))


def save_stanford(folder: Path, bert: Any, linear: Any, **metadata: Any) -> Any:
    save_arrays(folder, {**{f"bert.{n}": a for n, a in bert.state_dict().items()}, "linear.weight": linear})
    (folder / "config.json").write_text(json.dumps({**bert.config.to_dict(), "architectures": ["HF_ColBERT"]}))
    (folder / "artifact.metadata").write_text(json.dumps({**METADATA, **metadata}))
    return save_bert_tokenizer(folder)


def save_pylate(folder: Path, bert: Any, linear: Any, dense: dict[str, Any] | None = None, **about: Any) -> Any:
    about = {"query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 16, **about}
    folder.mkdir()
    layer = {"in_features": 16, "out_features": WIDTH, "bias": False} | (dense or {})
    layer |= {"activation_function": "torch.nn.modules.linear.Identity"} | (dense or {})
    save_modules(folder, ("1_Dense", "Dense", layer), document_length=24, **about)
    save_arrays(folder, bert.state_dict())
    save_arrays(folder / "1_Dense", {"linear.weight": linear})
    bert.config.save_pretrained(folder)
    return save_bert_tokenizer(folder)


def by_hand(bert: Any, linear: Any, tokenizer: Any, text: str, marker: int, length: int, attended: int = 0) -> Any:
    """Token ids, and the vectors of all of them: a placeholder makes room for the marker, padding becomes [MASK]."""
    read = tokenizer(". " + text, truncation=True, max_length=length, padding="max_length", return_tensors="pt")
    ids, mask = read["input_ids"], read["attention_mask"]
    ids[:, 1] = marker
    ids[ids == 0] = 103
    mask[:, :attended] = 1
    with torch.no_grad():
        vectors = bert(input_ids=ids, attention_mask=mask).last_hidden_state[0] @ linear.T
    return ids[0].numpy(), mask[0].numpy(), torch.nn.functional.normalize(vectors, dim=1).numpy()


def check(model: ColBERT, bert: Any, linear: Any, tokenizer: Any, attended: int = 0, expand: bool = True) -> None:
    for text, vectors in zip(QUERIES, model.query_embeddings(QUERIES), strict=True):
        _, mask, expected = by_hand(bert, linear, tokenizer, text, 1, 16, attended)
        assert vectors == pytest.approx(expected if expand else expected[mask == 1], abs=2e-4)
    punctuation = tokenizer.convert_tokens_to_ids(list(string.punctuation))
    for text, vectors in zip(TEXTS, model.document_embeddings([{"text": t} for t in TEXTS]), strict=True):
        ids, mask, expected = by_hand(bert, linear, tokenizer, text, 2, 24)
        assert vectors == pytest.approx(expected[(mask == 1) & ~np.isin(ids, punctuation)], abs=2e-4)


@pytest.mark.parametrize("runtime", ["onnx", "torch"])
@pytest.mark.parametrize("attended", [0, 16])
def test_a_folder_of_its_authors(
    tmp_path: Path, bert: Any, linear: Any, monkeypatch: pytest.MonkeyPatch, runtime: str, attended: int
) -> None:
    monkeypatch.setenv("VIZSLA_RUNTIME", runtime)
    tokenizer = save_stanford(tmp_path / "c", bert, linear, attend_to_mask_tokens=bool(attended))
    model = parse_model(f"colbert(checkpoint={tmp_path / 'c'}, precision=float32)")
    assert isinstance(model, ColBERT)
    assert (model.dimensions, model.length, model.query_length) == (WIDTH, 24, 16)
    check(model, bert, linear, tokenizer, attended)
    assert [len(rows) for rows in model.query_embeddings(["", "dog"])] == [0, 16]
    assert [len(rows) for rows in model.document_embeddings([{"text": " "}])] == [0]


def test_a_folder_of_pylate(tmp_path: Path, bert: Any, linear: Any) -> None:
    tokenizer = save_pylate(tmp_path / "c", bert, linear)
    check(ColBERT.open(tmp_path / "c", "float32"), bert, linear, tokenizer)
    tokenizer = save_pylate(tmp_path / "e", bert, linear, do_query_expansion=False)
    check(ColBERT.open(tmp_path / "e", "float32"), bert, linear, tokenizer, expand=False)
    save_pylate(tmp_path / "s", bert, linear, skiplist_words=["the"])
    rows = ColBERT.open(tmp_path / "s", "float32").document_embeddings([{"text": "the the."}])
    assert [len(row) for row in rows] == [4]  # [CLS] [D] . [SEP]


def test_it_is_stored_with_an_index_and_explained(tmp_path: Path, bert: Any, linear: Any) -> None:
    save_stanford(tmp_path / "c", bert, linear)
    model = ColBERT.open(tmp_path / "c", "int8")
    with Index.create(tmp_path / "i", parse_model("bm25") + 0.1 * model) as index:
        index.add(DOCUMENTS)
        index.commit()
    assert verify(tmp_path / "i") == []
    with Index.open(tmp_path / "i") as index:
        hits = index.search("the of", 10, model=model)
        assert {hit.id for hit in hits} == {"1", "2", "3"}
        (query,) = model.query_embeddings(["the of"])
        for hit in hits:
            (rows,) = model.document_embeddings([next(d for d in DOCUMENTS if d["id"] == hit.id)])
            expected = (query @ rows.astype(np.float16).astype(np.float32).T).max(axis=1).sum()
            assert hit.score == pytest.approx(expected, abs=1e-4)
        explained = index.explain("the of", hits[0].id, model=model)
        assert explained.score == pytest.approx(hits[0].score, abs=1e-5)
        assert [leaf.name for leaf in explained.parts[:5]] == ["[CLS]", "[Q]", "the", "of", "[SEP]"]
        assert [leaf.name for leaf in explained.parts[5:]] == ["[MASK]"] * 11
        assert all(leaf.facts["document_token"] for leaf in explained.parts)
    model.save(tmp_path / "saved")
    assert Model.load(tmp_path / "saved") == model


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("projection", r"no projection to token vectors \(no linear.weight\); vizsla train colbert puts one on it"),
        ("marker", r"has no marker '\[X\]'; its markers are named in artifact.metadata"),
        ("length", "doc_maxlen cannot be 0"),
        ("kind", "only plain BERT encoders"),
        ("width", "a matrix with 16 columns"),
        ("activation", "without activation"),
        ("layers", "one Dense layer, and this is Transformer, Pooling; dense.* reads models with a pooling"),
        ("skiplist", "skiplist_words must be a list"),
        ("positions", "reads 4 to 64 tokens, not 65"),
        ("nothing", "name a checkpoint"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, bert: Any, linear: Any, change: str, problem: str) -> None:
    folder, options = tmp_path / "c", ""
    if change in ("activation", "layers", "skiplist"):
        tanh = {"activation_function": "torch.nn.modules.activation.Tanh"} if change == "activation" else None
        save_pylate(folder, bert, linear, tanh, **({"skiplist_words": 1} if change == "skiplist" else {}))
        if change == "layers":
            save_modules(folder, ("1_Pooling", "Pooling", {}))
    else:
        told = {"marker": {"query_token_id": "[X]"}, "length": {"doc_maxlen": 0}}.get(change, {})
        save_stanford(folder, bert, linear[:, :8] if change == "width" else linear, **told)
    if change == "projection":
        save_arrays(folder, bert.state_dict())
    if change == "kind":
        (folder / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    if change == "positions":
        options = ", length=65"
    with pytest.raises(VizslaError, match=problem):
        parse_model("colbert" if change == "nothing" else f"colbert(checkpoint={folder}{options})")


def test_a_model_of_other_dimensions_and_texts_without_or_with_many_tokens(
    tmp_path: Path, bert: Any, linear: Any, cli: Cli
) -> None:
    save_stanford(tmp_path / "c", bert, linear)
    save_stanford(tmp_path / "narrow", bert, linear[:8])
    model = ColBERT.open(tmp_path / "c", "float32")
    texts = {"none": "", "unknown": "\U0001f415", "long": "the of " * 5000, "short": "the of"}
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    rows = model.document_embeddings(documents)
    assert [len(row) for row in rows] == [0, 0, 24, 5]
    options = {"vector_index": "plaid(min_documents=1, nlist=4)"}
    with Index.create(tmp_path / "i", model, **options) as index:
        index.add(documents)
        index.commit()
        for search_params in (None, "exact"):
            assert {hit.id for hit in index.search("the", search_params=search_params)} == {"long", "short"}
        assert "never found" in str(index.explain("the", "none"))
        assert index.explain("the", "long").facts["tokens"] == 24
        with pytest.raises(VizslaError, match="not with other token vectors: its own have 12 numbers, these 8"):
            index.search("the", model=ColBERT.open(tmp_path / "narrow", "float32"))
    assert verify(tmp_path / "i") == []
    assert "recall not measured (vizsla vectors recall)" in " ".join(cli("info", tmp_path / "i")[1].split())

"""Models that know English alone say so on text in other languages; multilingual ones do not."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import vizsla
from conftest import Cli
from tiny_checkpoints import made_encoder, masked_language, save_modules, save_splade, transformers
from vizsla import Index
from vizsla.errors import LanguageWarning
from vizsla.models import Dense, LearnedSparse, Model, parse_expander, with_expansion
from vizsla.text import WordPiece
from vizsla.text.detection import is_english_vocabulary
from vizsla.text.filters import has_stop_words, stop_words
from vizsla.text.languages import LANGUAGES

GERMAN = [
    {"id": str(i), "text": f"Der Hund und die Katze sind nicht im Garten, sondern auf der Straße vor den {n} Häusern."}
    for i, n in enumerate(["alten", "neuen", "großen", "kleinen"])
]
ENGLISH = [
    {"id": str(i), "text": f"The dog and the cat are not in the garden, but on the street in front of the {n} houses."}
    for i, n in enumerate(["old", "new", "large", "small"])
]
LISTS = [name for language in LANGUAGES.values() for name in language.lists if has_stop_words(name)]
WORDS = sorted({word for name in LISTS for word in stop_words(name)})


def xlm_r(folder: Path, texts: Iterable[str]) -> object:
    """A tokenizer in XLM-R's layout: a unigram model of SentencePiece with the words of many languages."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    letters = sorted({"▁", *"".join(texts), *"".join(WORDS)} - {" "})
    made = Tokenizer(
        models.Unigram([*special, *((f"▁{word}", -3.0) for word in WORDS), *((c, -8.0) for c in letters)], unk_id=3)
    )
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer = transformers.XLMRobertaTokenizerFast(tokenizer_object=made, model_max_length=64)
    tokenizer.save_pretrained(folder)
    return transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=80, pad_token_id=1,
    )  # fmt: skip


def warned(model: Model | str, folder: Path, documents: list[dict[str, str]], times: int = 1) -> list[str]:
    """The warnings when documents are indexed, and again by commits after that."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with Index.create(folder, model) as index:
            for i in range(times):
                index.add([document | {"id": f"{i}-{document['id']}"} for document in documents])
                index.commit()
    assert all(one.category is LanguageWarning for one in found), [str(one.message) for one in found]
    return [str(one.message) for one in found]


def test_a_vocabulary_is_english_if_it_has_no_other_language() -> None:
    bert = vizsla.Analyzer.parse("wordpiece").tokenizer
    assert isinstance(bert, WordPiece)
    assert is_english_vocabulary(bert.vocabulary)
    assert is_english_vocabulary([f"Ġ{word}" for word in bert.vocabulary])
    assert not is_english_vocabulary(WORDS)
    assert not is_english_vocabulary([f"▁{word}" for word in WORDS])
    assert not is_english_vocabulary([*bert.vocabulary, *stop_words("german"), *stop_words("lucene-german")])
    assert not is_english_vocabulary([*bert.vocabulary, *map(chr, range(0x4E00, 0x5E00))])
    assert not is_english_vocabulary(stop_words("german"))
    assert not is_english_vocabulary([])


@pytest.mark.parametrize("name", ["bm51", "vizsla-sparse"])
def test_shipped_models_warn_once_of_text_that_is_not_english(tmp_path: Path, name: str) -> None:
    (said,) = warned(name, tmp_path / "de", GERMAN, times=2)
    assert said.startswith("4 of 4 documents looked at are in German, and ")
    assert "--language de" in said
    assert warned(name, tmp_path / "en", ENGLISH) == []
    assert warned(name, tmp_path / "few", [{"id": "1", "text": "Vizsla 3.1"}]) == []


def test_one_document_in_twenty_is_no_reason(tmp_path: Path) -> None:
    documents = [{"id": str(i), "text": one["text"]} for i, one in enumerate([*ENGLISH * 5, GERMAN[0]])]
    assert warned("vizsla-splade", tmp_path / "i", documents) == []


def test_query_expansion_warns_once(tmp_path: Path) -> None:
    for name, documents in (("de", GERMAN), ("en", ENGLISH)):
        with Index.create(tmp_path / name) as index, warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            index.add(documents)
            index.commit()
            view = index.with_model(with_expansion(index.model, parse_expander("general")))
            view.search("Hund")
            view.search("dog")
            index.search("Hund", model=with_expansion(index.model, parse_expander("rm3")))
        assert len(found) == (name == "de")


def test_the_command_line_says_it_in_a_line(tmp_path: Path, cli: Cli) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_text("\n".join(json.dumps(document) for document in GERMAN) + "\n")
    code, _, said = cli("index", source, "-o", tmp_path / "i", "--model", "vizsla-splade")
    assert code == 0
    (line,) = [line for line in said.splitlines() if "knows the words of English alone" in line]
    assert line.startswith("vizsla: 4 of 4 documents")


@pytest.mark.parametrize("name", ["scifact", "nfcorpus", "cranfield"])
def test_english_collections_give_no_alarm(name: str, request: pytest.FixtureRequest) -> None:
    from vizsla.models import LANGUAGE_SAMPLE, warn_of_language

    folder = Path(request.getfixturevalue("data")) / name
    if not folder.is_dir():
        pytest.skip(f"there is no {name}")
    documents = [document.content for document in vizsla.BeirDataset.open(folder).documents()]
    model = vizsla.parse_model("vizsla-splade")
    for first in range(0, len(documents), LANGUAGE_SAMPLE):
        warn_of_language(model, documents[first : first + LANGUAGE_SAMPLE])


def test_a_multilingual_encoder_does_not_warn(tmp_path: Path) -> None:
    texts = [document["text"] for document in GERMAN]
    config = xlm_r(tmp_path / "xlm-r", texts)
    made_encoder(config).save_pretrained(tmp_path / "xlm-r")
    save_modules(tmp_path / "xlm-r")
    model = Dense.open(tmp_path / "xlm-r")
    vectors, known = model.query_embeddings(["Der Hund", "собака", "😀"])
    assert known.tolist()[:2] == [True, True]
    assert np.isfinite(vectors).all()
    assert warned(model, tmp_path / "i", GERMAN) == []
    reopened = vizsla.open(tmp_path / "i")
    assert reopened.search("Der Hund und die Katze", 1)[0].score > 0


def test_a_multilingual_splade_does_not_warn(tmp_path: Path) -> None:
    config = xlm_r(tmp_path / "splade", [document["text"] for document in GERMAN])
    masked_language(config).save_pretrained(tmp_path / "splade")
    save_splade(tmp_path / "splade")
    model = LearnedSparse.open(tmp_path / "splade")
    assert warned(model, tmp_path / "i", GERMAN) == []
    assert vizsla.open(tmp_path / "i").search("Hund und Katze", 1)[0].score > 0

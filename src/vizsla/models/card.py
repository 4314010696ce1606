"""Model cards: the README.md of a saved model, which says what it is and how it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vizsla.plain_data import read_object

CARD = "README.md"
_OURS = "library_name: vizsla"
_CODE = "unicoil_module"  # of neural/data, which travels with a model


def write_card(folder: Path, name: str = "") -> None:
    """Write the model card of a saved model, unless the user wrote one. `name`: its name on the model hub."""
    file = folder / CARD
    if file.is_file() and _OURS not in file.read_text("utf-8", "replace")[:500]:
        return
    about = read_object(folder / "model.json")
    modules = folder / "modules.json"
    layout = modules.read_text("utf-8") if modules.is_file() else ""
    file.write_text(card(about, layout, name), "utf-8")


def card(about: dict[str, Any], layout: str = "", name: str = "") -> str:
    """A model card: what the model is, and how it is used. `layout`: the modules.json beside it.

    >>> print(card({"name": "bm25", "parts": [{"kind": "bm25", "weight": 1.0, "fields": ["text"]}]}).split("## ")[0])
    ---
    library_name: vizsla
    pipeline_tag: feature-extraction
    tags:
    - vizsla
    - information-retrieval
    ---
    # bm25
    <BLANKLINE>
    A first-stage retriever for Vizsla, made of:
    <BLANKLINE>
    | weight | component | fields it reads |
    |---|---|---|
    | 1 | bm25 | text |
    <BLANKLINE>
    <BLANKLINE>
    """
    sparse = "SparseEncoder" in layout or "sparse_encoder" in layout or _CODE in layout
    tags = ["vizsla", "information-retrieval", *(["sentence-transformers", "sparse-encoder"] if sparse else [])]
    rows = [f"| {p['weight']:g} | {p['kind']} | {', '.join(p.get('fields') or ())} |" for p in about["parts"]]
    where = f"hf:{name}" if name else "FOLDER"
    lines = [
        "---", _OURS, "pipeline_tag: feature-extraction", "tags:", *(f"- {tag}" for tag in tags), "---",
        f"# {name or about['name']}", "",
        "A first-stage retriever for Vizsla, made of:", "",
        "| weight | component | fields it reads |", "|---|---|---|", *rows, "",
        "## Use", "",
        "```console", 'pip install "vizsla[neural,hub]"', f"vizsla index SOURCE -o my.index --model {where}",
        'vizsla search my.index "a question"', "```", "",
    ]  # fmt: skip
    if sparse:
        lines += _sparse_usage(name or "FOLDER", trusted=_CODE in layout)
    return "\n".join(lines)


def _sparse_usage(where: str, *, trusted: bool) -> list[str]:
    trust = ", trust_remote_code=True" if trusted else ""
    said = (
        f"Its last module is code that lies beside it (`{_CODE}.py`): read it before you trust it." if trusted else ""
    )
    return [
        "## Use with sentence-transformers", "", *([said, ""] if said else []),
        "```python", "from sentence_transformers import SparseEncoder", "",
        f'model = SparseEncoder("{where}"{trust})', 'vectors = model.encode_document(["a text"])', "```", "",
    ]  # fmt: skip

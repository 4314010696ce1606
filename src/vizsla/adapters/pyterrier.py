"""PyTerrier: any Retriever as a Transformer, any model as an Indexer. Java is never started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

from vizsla.adapters.common import Searched, needed, opened
from vizsla.index import Index
from vizsla.models import Model
from vizsla.runs import FilterLike

with needed("PyTerrier", "pyterrier"):
    import pandas as pd
    import pyterrier as pt


class VizslaRetriever(pt.Transformer):
    """The k best documents for each query of a frame: `docno`, `score` and `rank`, with `fields` of the documents.

    VizslaRetriever("my.index", fields=["text"]).search("barking dogs")
    """

    def __init__(
        self, retriever: Searched, k: int = 1000, filter: FilterLike = None, fields: Sequence[str] = ()
    ) -> None:
        self.retriever = opened(retriever)
        self.k, self.filter, self.fields = k, filter, tuple(fields)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.query_frame(inp, extra_columns=["query"])
        run = self.retriever.run({str(row): text for row, text in enumerate(inp["query"])}, self.k, self.filter)
        rows = [row for row in range(len(inp)) for _ in run[str(row)].documents]
        ids = [document for ranking in run.values() for document in ranking.documents]
        scores = [float(score) for ranking in run.values() for score in ranking.scores]
        ranks = [rank + pt.model.FIRST_RANK for ranking in run.values() for rank in range(len(ranking.documents))]
        found = inp.iloc[rows].reset_index(drop=True).assign(docno=ids, score=scores, rank=ranks)
        known = self.retriever.get_many(dict.fromkeys(ids)) if self.fields else {}
        return found.assign(**{field: [known[i].get(field) for i in ids] for field in self.fields})

    def fuse_rank_cutoff(self, k: int) -> VizslaRetriever | None:
        """The same with a smaller k, for `retriever % k`."""
        return VizslaRetriever(self.retriever, k, self.filter, self.fields) if k < self.k else None


class VizslaIndexer(pt.Indexer):
    """Indexes documents (`docno`, `text`, ...) in a folder; `index` returns a retriever for them.

    VizslaIndexer("my.index", "bm25").index([{"docno": "1", "text": "Dogs bark."}]).search("dogs")
    """

    def __init__(self, path: str | PathLike[str], model: Model | str = "bm25", **options: Any) -> None:
        self.path, self.model, self.options = path, model, options  # options: those of Index.create

    def index(self, iter: Iterable[Mapping[str, Any]], **_: Any) -> VizslaRetriever:
        index = Index.create(str(self.path), self.model, **self.options)
        index.add({"_id": d["docno"], **{k: v for k, v in d.items() if k != "docno"}} for d in iter)
        index.commit()
        return VizslaRetriever(index)

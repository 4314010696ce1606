"""Questions to a large collection, all systems at once on a GPU: BM25, an encoder, sketches of BM25, and their sums.

    python bench/questions.py prepare FOLDER --corpus corpus.jsonl --questions nq.jsonl trivia.jsonl --encoder DIR
    python bench/questions.py rank FOLDER --encoder DIR [--weights 0.02,0.025] [--widths 768,1536] [--depth 100]
    python bench/questions.py judge FOLDER --corpus corpus.jsonl --questions nq.jsonl trivia.jsonl [--regex]

`prepare` packs word pieces and BM25's vectors into a folder; `rank` needs nothing but numpy, torch and transformers, so
that the folder can be taken to a machine with a GPU and `rankings.npz` back; `judge` prints how many questions have an
answer among the first 20 and 100 passages. `--encoder`: the folder of a plain BERT whose tokens' mean is taken, of
length 1, as all-MiniLM-L6-v2's. Scores are exact sums over all passages, BM25's in 32 bits, dense products in 16.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

READ = {"documents": 256, "queries": 64}  # tokens, special ones included
BLOCK = 512  # questions asked together
SHARE = 0.25  # of a word's rarity that goes to documents: that of `vizsla.models.sketch`


def prepare(folder: Path, corpus: Path, questions: list[Path], encoder: Path) -> None:
    from scipy import sparse

    from vizsla.datasets import read_questions
    from vizsla.engine.projection import term_keys
    from vizsla.models import BM25, count_statistics, field_text
    from vizsla.text import Analyzer
    from vizsla.training.sources.token_corpus import TextPacker

    folder.mkdir(parents=True, exist_ok=True)
    bm25 = BM25()
    encoder_of_documents, packer = bm25.document_encoder(), TextPacker(Analyzer.parse(f"wordpiece:{encoder}"))

    def pieces(texts: list[str]) -> list[np.ndarray]:
        ids, sizes = packer.block(texts)
        return np.split(ids, np.cumsum(sizes)[:-1])

    rows, lengths, tokens = [], [], []
    for documents in batches(corpus):
        stored = encoder_of_documents.encode(documents)
        vectors = stored.vectors
        shape = len(documents), len(vectors.vocabulary)
        rows.append(sparse.csr_matrix((vectors.values, vectors.indices, vectors.pointers), shape))
        lengths.append(stored.lengths)
        tokens += [ids[: READ["documents"] - 2] for ids in pieces([field_text(d, bm25.fields) for d in documents])]
    terms = [term for _, term in map(vectors.vocabulary.__getitem__, range(shape[1]))]
    for part in rows:
        part.resize(part.shape[0], len(terms))
    counts, size = sparse.vstack(rows).tocsr(), np.concatenate(lengths)
    whole = stored._replace(
        vectors=type(vectors)(vectors.vocabulary, counts.indptr, counts.indices, counts.data), lengths=size
    )
    statistics = count_statistics(whole)
    weights = bm25.weigh(whole, statistics).values.astype(np.float32)
    posted = sparse.csr_matrix((weights, counts.indices, counts.indptr), counts.shape).tocsc()
    posted.sort_indices()
    np.save(folder / "starts.npy", posted.indptr.astype(np.int64))
    np.save(folder / "documents.npy", posted.indices.astype(np.int32))
    np.save(folder / "weights.npy", posted.data)
    np.save(folder / "keys.npy", term_keys(terms))
    np.save(folder / "rarity.npy", bm25.term_factors(np.diff(posted.indptr), statistics.documents).astype(np.float32))
    save_rows(folder, "pieces", tokens, np.uint16)
    numbers, asked, spans = {term: i for i, term in enumerate(terms)}, [], {}
    for file in questions:
        texts = list(read_questions(file).texts.values())
        spans[file.stem] = len(asked), len(asked) + len(texts)
        asked += texts
    found = [[(numbers[t], w) for t, w in row.items() if t in numbers] for row in bm25.query_terms(asked)]
    save_rows(folder, "asked", [np.array([t for t, _ in row], np.int32) for row in found], np.int32)
    np.save(folder / "asked_weights.npy", np.array([w for row in found for _, w in row], np.float32))
    save_rows(folder, "asked_pieces", [ids[: READ["queries"] - 2] for ids in pieces(asked)], np.uint16)
    (folder / "spans.json").write_text(json.dumps(spans))
    print(f"{counts.shape[0]:,} documents, {counts.nnz:,} postings of {len(terms):,} terms, {len(asked):,} questions")


def batches(corpus: Path, size: int = 50_000) -> Iterator[list[dict[str, str]]]:
    with corpus.open() as lines:
        while some := [json.loads(line) for line in islice(lines, size)]:
            yield some


def save_rows(folder: Path, name: str, rows: list[np.ndarray], kind: type) -> None:
    np.save(folder / f"{name}.npy", np.concatenate(rows).astype(kind))
    np.save(folder / f"{name}_starts.npy", np.cumsum([0, *map(len, rows)]))


class Device:
    """What was prepared, on a GPU where there is one."""

    def __init__(self, folder: Path, encoder: Path) -> None:
        import torch
        from transformers import AutoModel

        from vizsla.neural.encoder import encoder_of
        from vizsla.neural.heads.dense import Pooled

        self.folder = folder
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.starts, self.documents, self.weights, self.rarity, self.asked, self.asked_starts, self.asked_weights = (
            torch.from_numpy(np.load(folder / f"{name}.npy")).to(self.device)
            for name in ("starts", "documents", "weights", "rarity", "asked", "asked_starts", "asked_weights")
        )
        self.count = len(np.load(folder / "pieces_starts.npy", mmap_mode="r")) - 1
        network = encoder_of(AutoModel.from_pretrained(encoder, dtype=torch.float32))
        self.network = Pooled(network, "mean", normalize=True).to(self.device).eval()

    def encoded(self, name: str, side: str) -> torch.Tensor:
        """[texts, width] the encoder's vectors in 16 bits."""
        import torch

        from vizsla.neural.chunks import packed
        from vizsla.training import TokenCorpus
        from vizsla.training.sources.token_corpus import with_special_tokens

        texts = TokenCorpus(np.load(self.folder / f"{name}.npy"), np.load(self.folder / f"{name}_starts.npy"))
        out = torch.empty(len(texts), self.network.width, dtype=torch.float16, device=self.device)
        order = np.argsort(np.diff(texts.offsets), kind="stable")
        for first in range(0, len(texts), 8192):
            chosen = order[first : first + 8192]
            batch = packed(*with_special_tokens(texts, chosen, self.device, max_length=READ[side]), 400_000, 1)
            with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
                made = [self.network(chunk).float() for chunk in batch.chunks]
            out[torch.from_numpy(chosen).to(self.device)] = self.network.vectors(made, batch).half()
        return out

    def lexical(self, questions: torch.Tensor) -> torch.Tensor:
        """[questions, documents] BM25's scores: the lists of all words of all questions added up."""
        import torch

        row, at = spread(self.asked_starts[questions], self.asked_starts[questions + 1])
        terms = self.asked[at].long()
        pair, place = spread(self.starts[terms], self.starts[terms + 1])
        factors = self.asked_weights[at] * self.rarity[terms]
        scores = torch.zeros(len(questions), self.count, device=self.device)
        scores.view(-1).index_add_(
            0, row[pair] * self.count + self.documents[place], self.weights[place] * factors[pair]
        )
        return scores

    def sketches(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Documents and questions in so many numbers: what `vizsla.models.Sketch` makes of them."""
        import torch
        from torch.nn.functional import embedding_bag

        keys = np.load(self.folder / "keys.npy")
        step = np.arange(1, width // 64 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = keys[:, None] + step
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
        thrown = np.unpackbits(bits.astype("<u8").view(np.uint8), axis=1, bitorder="little")
        signs = (1 - 2 * torch.from_numpy(thrown).to(self.device).to(torch.float32)) / width**0.5
        terms = torch.repeat_interleave(torch.arange(len(keys), device=self.device), self.starts.diff())
        order = torch.argsort(self.documents, stable=True)
        begins = torch.searchsorted(self.documents[order], torch.arange(self.count + 1, device=self.device).int())
        made = torch.empty(self.count, width, dtype=torch.float16, device=self.device)
        for first in range(0, self.count, 65_536):
            last = min(first + 65_536, self.count)
            some = order[begins[first] : begins[last]]
            weights = self.weights[some] * self.rarity[terms[some]] ** SHARE
            at = begins[first:last] - begins[first]
            made[first:last] = embedding_bag(terms[some], signs, at, mode="sum", per_sample_weights=weights).half()
        row, at = spread(self.asked_starts[:-1], self.asked_starts[1:])
        asked = torch.zeros(len(self.asked_starts) - 1, width, device=self.device)
        words = self.asked[at].long()
        asked.index_add_(0, row, signs[words] * (self.asked_weights[at] * self.rarity[words] ** (1 - SHARE))[:, None])
        return made, asked.half()


def spread(first: torch.Tensor, last: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of which range, and where, everything in ranges of places is."""
    import torch

    sizes = last - first
    which = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    return which, torch.arange(len(which), device=sizes.device) - (sizes.cumsum(0) - sizes - first)[which]


def rank(folder: Path, encoder: Path, weights: list[float], widths: list[int], depth: int) -> None:
    import torch

    device = Device(folder, encoder)
    vectors, asked = device.encoded("pieces", "documents"), device.encoded("asked_pieces", "queries")
    sketches = {width: device.sketches(width) for width in widths}
    rankings: dict[str, list[np.ndarray]] = {}
    for name, (first, last) in json.loads((folder / "spans.json").read_text()).items():
        for begin in range(first, last, BLOCK):
            questions = torch.arange(begin, min(begin + BLOCK, last), device=device.device)
            lexical, dense = device.lexical(questions), (asked[questions] @ vectors.T).float()
            scores = {"bm25": lexical, "dense": dense}
            scores |= {f"dense + {w:g} * bm25": dense + w * lexical for w in weights}
            for width, (documents, queries) in sketches.items():
                sketch = (queries[questions] @ documents.T).float()
                scores[f"sketch {width}"] = sketch
                scores |= {f"dense + {w:g} * sketch {width}": dense + w * sketch for w in weights}
            for system, made in scores.items():
                top = made.topk(min(depth, device.count), 1).indices
                rankings.setdefault(f"{name}: {system}", []).append(top.int().cpu().numpy())
    np.savez(folder / "rankings.npz", **{name: np.concatenate(parts) for name, parts in rankings.items()})
    print(f"{len(rankings)} rankings in {folder / 'rankings.npz'}")


def judge(folder: Path, corpus: Path, questions: list[Path], *, regex: bool = False) -> None:
    from vizsla.datasets import read_questions
    from vizsla.evaluation import accuracy, has_answer, rbo

    texts = [d["text"] for documents in batches(corpus) for d in documents]
    rankings = np.load(folder / "rankings.npz")
    for file in questions:
        answers = list(read_questions(file).answers.values())
        systems = [name.partition(": ")[2] for name in rankings.files if name.startswith(f"{file.stem}: ")]
        found = {system: rankings[f"{file.stem}: {system}"] for system in systems}
        known: list[dict[int, bool]] = [{} for _ in answers]
        print(f"{file.stem:<32} {'Acc@20':>8} {'Acc@100':>8} {'RBO with bm25':>14}")
        for system, rows in found.items():
            ranks: dict[str, int | None] = {}
            for i, row in enumerate(rows.tolist()):
                for document in row:
                    if document not in known[i]:
                        known[i][document] = has_answer(texts[document], answers[i], regex=regex)
                ranks[str(i)] = next((r for r, d in enumerate(row, 1) if known[i][d]), None)
            reached = accuracy(ranks, [20, 100])
            pairs = zip(rows.tolist(), found["bm25"].tolist(), strict=True)
            alike = np.mean([rbo(list(map(str, a)), list(map(str, b))) for a, b in pairs])
            print(f"  {system:<30} {reached[20]:>8.4f} {reached[100]:>8.4f} {alike:>14.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["prepare", "rank", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--questions", type=Path, nargs="*", default=[])
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--weights", default="0.014,0.02,0.025,0.03")
    parser.add_argument("--widths", default="768,1536,3072")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--regex", action="store_true", help="answers are regular expressions, as in CuratedTREC")
    options = parser.parse_args()
    if options.stage == "prepare":
        prepare(options.folder, options.corpus, options.questions, options.encoder)
    elif options.stage == "rank":
        weights, widths = [float(w) for w in options.weights.split(",")], [int(w) for w in options.widths.split(",")]
        rank(options.folder, options.encoder, weights, widths, options.depth)
    else:
        judge(options.folder, options.corpus, options.questions, regex=options.regex)


if __name__ == "__main__":
    main()

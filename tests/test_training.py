"""The machinery of training, on small networks and in 64-bit floats where exactness is claimed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from vizsla import VizslaError
from vizsla.errors import InputError
from vizsla.neural.chunks import packed
from vizsla.neural.encoder import PackedBert, Padded, encoder_of
from vizsla.neural.heads.colbert import (
    Framing,
    LateInteraction,
    TokenProjection,
)
from vizsla.neural.heads.splade import Splade, TiedHead
from vizsla.neural.heads.unicoil import UniCoil
from vizsla.training import (
    ContrastiveLoss,
    ContrastiveObjective,
    CroppedPairs,
    Crops,
    DevSet,
    MinedPairs,
    TokenCorpus,
    Trainer,
    TrainingSettings,
    train_masked_lm,
)
from vizsla.training.loop.objectives import contrastive_loss
from vizsla.training.loop.products import SparseRows, inner_products
from vizsla.training.loop.trainer import cached_backward
from vizsla.training.sources.token_corpus import with_special_tokens

VOCABULARY = 120


def small_bert(dropout: float = 0.0) -> transformers.BertModel:
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.BertModel(config, add_pooling_layer=False)


def small_network(dropout: float = 0.0) -> UniCoil:
    return UniCoil(encoder_of(small_bert(dropout)), special_tokens=(0, 1)).double()


def small_colbert() -> LateInteraction:
    framing = Framing(query_marker=1, document_marker=2, query_length=9, length=16, skipped=(7, 8))
    encoder = encoder_of(small_bert())
    assert isinstance(encoder, PackedBert)
    return LateInteraction(TokenProjection(encoder, 8), framing).double()


def batch(seed: int, rows: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, VOCABULARY, (rows, 14), generator=generator)
    mask = torch.arange(14) < torch.randint(3, 15, (rows, 1), generator=generator)
    return torch.where(mask, ids, 0), mask


def vectors(network: UniCoil | Splade, ids: torch.Tensor, mask: torch.Tensor, tokens: int = 20) -> torch.Tensor:
    side = packed(ids, mask, tokens)
    return network.vectors([network(chunk) for chunk in side.chunks], side)


@pytest.mark.parametrize(("tokens", "kept_chunks"), [(1, 0), (40, 0), (40, 3), (40, 100), (100, 1), (10_000, 0)])
def test_gradient_caching_is_plain_back_propagation(tokens: int, kept_chunks: int) -> None:
    """To 1e-12 in 64-bit floats, a regulariser over all vectors included."""

    def loss_of(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        regulariser = (queries.mean(0) ** 2).sum() + (documents.mean(0) ** 2).sum()
        return contrastive_loss(inner_products(queries, documents) / 0.7) + 0.01 * regulariser

    plain, cached = small_network(), small_network()
    sides = [batch(1), batch(2)]
    loss = loss_of(*(vectors(plain, *side, 10_000) for side in sides))
    loss.backward()
    chunked = [packed(*side, tokens) for side in sides]
    found = cached_backward(
        cached,
        chunked,
        lambda *made: loss_of(*(cached.vectors(m, s) for m, s in zip(made, chunked, strict=True))),
        kept_chunks=kept_chunks,
    )
    assert found.item() == pytest.approx(loss.item(), abs=1e-12)
    for a, b in zip(plain.parameters(), cached.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert torch.allclose(a.grad, b.grad, rtol=0, atol=1e-12)


def test_the_second_pass_draws_the_same_random_numbers() -> None:
    network, seen = small_network(dropout=0.3).train(), []

    def encode(chunk: object) -> torch.Tensor:
        seen.append(network(chunk))
        return seen[-1]

    side = packed(*batch(4), 30)
    torch.manual_seed(9)
    cached_backward(
        encode,
        [side, side],
        lambda *made: contrastive_loss(inner_products(*(network.vectors(m, side) for m in made))),
    )
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert len(side.chunks) > 1
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[len(side.chunks)])  # the two sides had random numbers of their own


@pytest.mark.slow
def test_a_head_learns_to_name_masked_words() -> None:
    """Every text repeats one word, so that what is masked can be told from its neighbours."""
    corpus = TokenCorpus.pack([[word] * 12 for word in range(5, 25)] * 4)
    encoder = encoder_of(small_bert())
    network = Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, 16))
    settings = TrainingSettings(
        steps=60, batch_size=40, tokens_per_chunk=200, learning_rate=2e-2, warmup_steps=5, precision="float32"
    )
    seen = []
    last = train_masked_lm(network, corpus, settings, report=seen.append)
    assert last == seen[-1]["masked_loss"] < 0.5 * seen[0]["masked_loss"]


def mined() -> MinedPairs:
    rng = np.random.default_rng(8)
    texts = TokenCorpus.pack(rng.integers(4, 100, (30, 8)))
    positives = TokenCorpus.of([np.array(p) for p in ([0], [1, 2], [], [3], [1, 4], [5])])
    negatives = TokenCorpus.of([np.array(n) for n in ([7, 8, 9], [10, 11], [12], [13, 1], [14, 15, 16, 17], [18])])
    return MinedPairs(TokenCorpus.pack(rng.integers(4, 100, (6, 5))), texts, positives, negatives, 2)


def test_pairs_of_several_data_sets_are_those_of_each() -> None:
    one, both = mined(), MinedPairs.concatenate([mined(), mined()])
    assert (len(both.queries), len(both.documents)) == (12, 60)
    for query in range(6):
        for name in ("queries", "positives", "negatives"):
            first, second = getattr(both, name)[query], getattr(both, name)[query + 6]
            assert first.tolist() == getattr(one, name)[query].tolist()
            assert second.tolist() == (first + (0 if name == "queries" else 30)).tolist()
    assert both.documents[31].tolist() == one.documents[1].tolist()


def test_mined_pairs_go_through_all_queries_and_take_turns() -> None:
    pairs = mined()
    seen: dict[int, set[int]] = {}
    for step in range(10):  # two steps an epoch: query 2 has no positive
        texts, false_negatives, _ = pairs.batch(2, 0, step, torch.device("cpu"))
        assert [len(ids) for ids, _ in texts] == [2, 2, 4]
        assert false_negatives.shape == (2, 6)
        assert not false_negatives[[0, 1], [0, 1]].any()
        for row in range(2):
            query = next(
                q for q in range(6) if torch.equal(texts[0][0][row][1:-1], torch.tensor(pairs.queries[q].astype(int)))
            )
            found = next(
                d
                for d in range(30)
                if torch.equal(texts[1][0][row][1:-1], torch.tensor(pairs.documents[d].astype(int)))
            )
            seen.setdefault(query, set()).add(found)
    assert seen.keys() <= {0, 1, 3, 4, 5}
    assert all(found <= set(pairs.positives[q].tolist()) for q, found in seen.items())
    assert seen[1] == {1, 2} or seen[4] == {1, 4}
    again = pairs.batch(2, 0, 3, torch.device("cpu"))
    assert all(
        torch.equal(a[0], b[0])
        for a, b in zip(again.texts, pairs.batch(2, 0, 3, torch.device("cpu")).texts, strict=True)
    )
    with pytest.raises(VizslaError, match="needs as many queries"):
        pairs.batch(6, 0, 0, torch.device("cpu"))


def test_a_document_that_answers_too_is_not_held_against_a_query() -> None:
    pairs = mined()
    false_negatives = pairs._false_negatives(np.array([1, 4, 3]), np.array([1, 4, 3, 1, 2, 9]))
    expected = [[0, 0, 0, 1, 1, 0], [1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]]
    assert false_negatives.int().tolist() == expected
    scores = torch.zeros(3, 6, dtype=torch.float64)
    loss = contrastive_loss(scores, symmetric=False, false_negatives=false_negatives)
    assert loss.item() == pytest.approx((np.log(4) + np.log(4) + np.log(6)) / 3)


def test_supervised_training_runs_on_the_same_loop() -> None:
    settings = replace(SMALL, batch_size=4, learning_rate=3e-3, steps=30)
    objective = ContrastiveObjective(ContrastiveLoss(symmetric=False))
    trainer = Trainer(small_network(), mined(), settings, objective=objective)
    losses = [trainer.step()["loss"] for _ in range(30)]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


def test_crops_are_stretches_of_their_documents() -> None:
    rng = np.random.default_rng(2)
    documents = [np.arange(i * 1000 + 200, i * 1000 + 200 + n) % 60_000 for i, n in enumerate(rng.integers(1, 700, 50))]
    corpus = TokenCorpus.pack(documents)
    crops = Crops(deletion_rate=0.2)
    ids, offsets = crops.tensors(corpus, "cpu")
    generator = torch.Generator().manual_seed(7)
    chosen = torch.arange(50)
    tokens, mask = crops.crop(ids, offsets, chosen, generator)
    again = crops.crop(ids, offsets, chosen, torch.Generator().manual_seed(7))
    assert torch.equal(tokens, again[0])
    assert not torch.equal(tokens, crops.crop(ids, offsets, chosen, generator)[0][:, : tokens.shape[1]])
    for row in range(50):
        inside = tokens[row][mask[row]].tolist()
        assert (inside[0], inside[-1]) == (101, 102)
        body = inside[1:-1]
        places = [documents[row].tolist().index(t) for t in body]
        assert places == sorted(places)
        assert places[-1] - places[0] < max(128, 4)
        assert body
        assert (tokens[row][~mask[row]] == 0).all()
    with pytest.raises(VizslaError, match="impossible"):
        Crops(min_fraction=0.0)


def test_two_crops_share_a_window_only_where_it_is_said() -> None:
    """In a document of 2,000 tokens all different, a token tells its place."""
    corpus = TokenCorpus.pack([list(range(200, 2200))] * 300)

    def spans(same_window: bool) -> np.ndarray:
        """How far apart the first and the last token of each pair of crops are."""
        crops = Crops(same_window=same_window)
        pairs = CroppedPairs(corpus, crops).batch(300, 0, 0, torch.device("cpu"))
        bodies = [torch.where(mask & (ids > 102), ids, -1) for ids, mask in pairs.texts]
        last = torch.stack([body.amax(1) for body in bodies]).amax(0)
        first = torch.stack([torch.where(body < 0, 9999, body).amin(1) for body in bodies]).amin(0)
        assert not torch.equal(bodies[0][:, :3], bodies[1][:, :3])  # two crops all the same, not one twice
        return (last - first).numpy()

    assert spans(same_window=True).max() < 256
    assert np.median(spans(same_window=False)) > 256
    short = CroppedPairs(TokenCorpus.pack([[7, 8, 9]]), Crops(same_window=True)).batch(1, 0, 0, torch.device("cpu"))
    assert all(mask.sum() >= 3 for _, mask in short.texts)


def test_deletion_takes_its_share() -> None:
    corpus = TokenCorpus.pack([list(range(200, 456))] * 400)
    crops = Crops(min_fraction=0.5, max_fraction=0.5, deletion_rate=0.1)
    _, mask = crops.crop(*crops.tensors(corpus, "cpu"), torch.arange(400), torch.Generator().manual_seed(1))
    assert mask.sum(1).float().mean().item() - 1 == pytest.approx(0.9 * 128, rel=0.02)


def test_a_packed_corpus_goes_to_disk_and_back(tmp_path: Path) -> None:
    corpus = TokenCorpus.pack([[1, 2], [], [70_000]])
    assert (len(corpus), corpus.ids.dtype) == (2, np.uint32)
    corpus.save(tmp_path / "c")
    opened = TokenCorpus.open(tmp_path / "c")
    assert [d.tolist() for d in (opened[0], opened[1])] == [[1, 2], [70_000]]
    with pytest.raises(InputError, match="no packed corpus here"):
        TokenCorpus.open(tmp_path)
    np.save(tmp_path / "c" / "offsets.npy", np.array([0, 9]))
    with pytest.raises(InputError, match="contradict"):
        TokenCorpus.open(tmp_path / "c")


def test_contrastive_loss_by_hand() -> None:
    scores = torch.eye(2, dtype=torch.float64)
    one = float(np.log(1 + np.exp(-1)))
    assert contrastive_loss(scores).item() == pytest.approx(one)
    assert contrastive_loss(scores / 0.5).item() == pytest.approx(float(np.log(1 + np.exp(-2))))
    more = torch.cat([scores, torch.zeros(2, 1, dtype=torch.float64)], 1)
    assert contrastive_loss(more, symmetric=False).item() == pytest.approx(float(np.log(1 + 2 * np.exp(-1))))


def small_pairs() -> CroppedPairs:
    rng = np.random.default_rng(3)
    return CroppedPairs(TokenCorpus.pack(rng.integers(2, VOCABULARY, (40, 50))), Crops(window=40, cls_id=2, sep_id=3))


SMALL = TrainingSettings(
    steps=6, batch_size=12, tokens_per_chunk=60, warmup_steps=2, learning_rate=1e-2, precision="float32", save_steps=2,
    eval_steps=2,
)  # fmt: skip


def small_trainer(folder: Path | None, **options: object) -> Trainer:
    return Trainer(
        small_network(dropout=0.1), small_pairs(), replace(SMALL, **options), folder=folder, dev=[small_dev()]
    )


def small_dev() -> DevSet:
    rng = np.random.default_rng(4)
    texts = TokenCorpus.pack(rng.integers(2, VOCABULARY, (15, 9)))
    rows = SparseRows(np.arange(16), rng.integers(0, 5, 15), rng.random(15))
    return DevSet("small", texts, texts, np.array([[i, i, 1] for i in range(15)]), rows, rows)


class _Killed(Exception):
    pass


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Dropout's random numbers, the optimizer's state and the best parameters included."""
    whole = small_trainer(tmp_path / "whole")
    expected = whole.run()

    def kill(line: dict[str, object]) -> None:
        if line["step"] == 5:
            raise _Killed

    broken = small_trainer(tmp_path / "broken")
    broken.report = kill
    with pytest.raises(_Killed):
        broken.run()
    again = small_trainer(tmp_path / "broken")
    found = again.run(resume=True)
    assert (found.step, found.best, found.best_step) == (expected.step, expected.best, expected.best_step)
    for a, b in zip(whole.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(a, b)
    other = Trainer(Padded(small_bert()), small_pairs(), SMALL, folder=tmp_path / "broken")
    with pytest.raises(InputError, match="does not belong to this network"):
        other.run(resume=True)
    with pytest.raises(VizslaError, match="no checkpoint"):
        small_trainer(tmp_path / "nothing").run(resume=True)


@pytest.mark.slow
def test_training_learns_and_stops_in_time() -> None:
    trainer = small_trainer(None, steps=40, learning_rate=3e-2)
    losses = [trainer.step()["loss"] for _ in range(40)]
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    patient = small_trainer(None, steps=40, patience=1, eval_steps=1, learning_rate=1e-9)
    assert patient.run().step < 40


def test_the_dev_figures_are_those_of_the_scores() -> None:
    trainer, dev = small_trainer(None), small_dev()
    trainer.network.eval()
    figures = dev.figures(trainer.encode, trainer.network.vectors, torch.device("cpu"))
    made = vectors(trainer.network, *with_special_tokens(dev.documents, range(15), "cpu"), 1000)
    ranks = [(row > row[i]).sum().item() for i, row in enumerate(made @ made.T)]
    expected = np.mean([1 / np.log2(rank + 2) if rank < 10 else 0.0 for rank in ranks])
    assert figures["small nDCG@10"] == pytest.approx(expected, abs=1e-6)
    assert set(figures) == {"small nDCG@10", "small with BM25 nDCG@10"}


def test_a_dev_set_goes_to_disk_and_back(tmp_path: Path) -> None:
    small_dev().save(tmp_path / "small")
    trainer = small_trainer(None)
    trainer.network.eval()
    figures = [
        d.figures(trainer.encode, trainer.network.vectors, torch.device("cpu"))
        for d in (small_dev(), DevSet.open(tmp_path / "small"))
    ]
    assert figures[0] == figures[1]
    with pytest.raises(InputError, match="no dev set"):
        DevSet.open(tmp_path)


SHARED = """
import sys, torch
sys.path.insert(0, {tests!r})
from dataclasses import replace
from test_training import SMALL, small_colbert, small_network, small_pairs
from vizsla.training import ContrastiveObjective, Distributed, SparseLoss, SparseObjective, Trainer
distributed = Distributed.start("cpu")
torch.set_num_threads(1)
settings = replace(SMALL, batch_size=13)
objective = SparseObjective(SparseLoss(flops_queries=0.01, flops_documents=0.02))
made = []
for network, goal in ((small_network(), objective), (small_colbert(), ContrastiveObjective())):
    for parameter in network.parameters():
        parameter.data += distributed.rank  # the main process's parameters win
    trainer = Trainer(network, small_pairs(), settings, objective=goal, distributed=distributed)
    trainer.run()
    made += [p.detach() for p in trainer.network.parameters()]
if distributed.is_main:
    torch.save(made, {file!r})
"""


def same_in_processes(script: str, tests: Path, folder: Path) -> list[list[torch.Tensor]]:
    """What a script leaves when one process runs it, and when two do."""
    made = []
    for processes in (1, 2):
        file, code = folder / f"{processes}.pt", folder / f"{processes}.py"
        code.write_text(script.format(tests=str(tests), file=str(file)))
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*launch, str(code)], check=True, capture_output=True, env=environment)
        made.append(torch.load(file))
    return made


@pytest.mark.slow
def test_two_processes_equal_one_with_the_whole_batch(tmp_path: Path) -> None:
    for a, b in zip(*same_in_processes(SHARED, Path(__file__).parent, tmp_path), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-9)


def test_too_little_memory_is_told_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer(None)

    def full(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer.network, "forward", full)
    with pytest.raises(VizslaError, match=r"too little memory for chunks of 60 tokens .* training.tokens_per_chunk=30"):
        trainer.step()


def test_compiled_code_refuses_dropout() -> None:
    with pytest.raises(VizslaError, match="other random numbers"):
        small_trainer(None, compile=True)


def test_training_imports_where_numba_is_not() -> None:
    """On a machine with torch and transformers, and none of the packages that searching needs."""
    names = "Trainer, Distributed, SparseObjective, DevSet, MinedPairs, CroppedPairs, CrossEncoderData, AugmenterData"
    absent = ("numba", "Stemmer", "ir_measures", "scipy", "typer", "rich", "yaml", "zstandard")
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({absent!r}))\n"  # None there makes importing them fail
        "import vizsla.neural\n"
        f"from vizsla.training import {names}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""How long a large run takes to evaluate and to fuse, beside pytrec_eval and ranx.

    python bench/evaluation.py [--queries 10000] [--depth 1000] [--rounds 3]

The same run and judgements in each library's own form, made beforehand: figures from a run in memory. ranx compiles its
measures first, and may use all cores (NUMBA_NUM_THREADS=1 holds it to one). Fusing: reciprocal ranks of two runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from vizsla.evaluation import evaluate
from vizsla.runs import Qrels, Ranking, Run, fuse, parse_measures

MEASURES = "nDCG@10 AP R@100 RR P@10"


def made_up(queries: int, depth: int, seed: int) -> dict[str, tuple[list[str], np.ndarray]]:
    """Rankings of documents out of ten times as many as are found, with scores that fall."""
    rng = np.random.default_rng(seed)
    names = np.array([f"doc{i}" for i in range(10 * depth)])
    rows = {}
    for q in range(queries):
        found = rng.choice(len(names), depth, replace=False)
        rows[f"q{q}"] = names[found].tolist(), np.sort(rng.random(depth))[::-1].astype(np.float32).astype(np.float64)
    return rows


def best(do: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    seconds, result = [], None
    for _ in range(rounds):
        started = time.perf_counter()
        result = do()
        seconds.append(time.perf_counter() - started)
    return min(seconds), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = made_up(options.queries, options.depth, 1)
    rng = np.random.default_rng(3)
    judged = {}
    for q, (documents, _) in rows.items():
        some = rng.choice(len(documents), 10, replace=False).tolist()
        judged[q] = {documents[i]: int(grade) for i, grade in zip(some, rng.integers(0, 3, 10), strict=True)}
    run = Run({q: Ranking(d, s) for q, (d, s) in rows.items()})
    print(f"{options.queries:,} queries, {options.depth:,} documents each, {MEASURES}; best of {options.rounds}")
    ours, figures = best(lambda: evaluate(run, Qrels(judged), parse_measures(MEASURES), "trec"), options.rounds)
    print(f"vizsla       {ours:8.2f} s   {figures.measures}")
    plain = {q: dict(zip(d, s.tolist(), strict=True)) for q, (d, s) in rows.items()}
    _pytrec_eval(judged, plain, options.rounds, ours)
    _ranx(judged, plain, run, options, ours)


def _pytrec_eval(judged: Any, plain: Any, rounds: int, ours: float) -> None:
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "map", "recall.100", "recip_rank", "P.10"})
    seconds, found = best(lambda: evaluator.evaluate(plain), rounds)
    means = {m: float(np.mean([values[m] for values in found.values()])) for m in next(iter(found.values()))}
    print(f"pytrec_eval  {seconds:8.2f} s   ours is {ours / seconds:.2f} of it   {means}")


def _ranx(judged: Any, plain: Any, run: Run, options: argparse.Namespace, ours: float) -> None:
    try:
        import ranx
    except ImportError as e:
        print(f"ranx is not here ({e}); pip install ranx")
        return
    qrels, theirs = ranx.Qrels(judged), ranx.Run(plain)
    measures = ["ndcg@10", "map", "recall@100", "mrr", "precision@10"]
    small = {q: plain[q] for q in list(plain)[:5]}
    ranx.evaluate(ranx.Qrels({q: judged[q] for q in small}), ranx.Run(small), measures)  # compiles
    seconds, means = best(lambda: ranx.evaluate(qrels, theirs, measures), options.rounds)
    print(f"ranx         {seconds:8.2f} s   ours is {ours / seconds:.2f} of it   {means}")
    second = made_up(options.queries, options.depth, 2)
    other = Run({q: Ranking(d, s) for q, (d, s) in second.items()})
    fused, _ = best(lambda: fuse([run, other], "rrf"), 1)
    print(f"vizsla, fuse {fused:8.2f} s")
    others = ranx.Run({q: dict(zip(d, s.tolist(), strict=True)) for q, (d, s) in second.items()})
    ranx.fuse(runs=[ranx.Run(small), ranx.Run(small)], method="rrf")
    seconds, _ = best(lambda: ranx.fuse(runs=[theirs, others], method="rrf"), 1)
    print(f"ranx, fuse   {seconds:8.2f} s   ours is {fused / seconds:.2f} of it")


if __name__ == "__main__":
    main()

"""vizsla tune: k1, b and weights chosen on a dev split; or the weight of one model in a sum."""

from __future__ import annotations

from typing import Annotated

import typer

from vizsla.cli import options
from vizsla.errors import VizslaError


def tune(
    sets: options.QuestionSets,
    model: Annotated[str | None, options.model("The model to tune; default: bm25, or that of --index.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUES", help="What to vary: k1=0.6:1.8:0.2, b=0.3,0.5 or title.weight=0.5,1,2."
        ),
    ] = None,
    split: Annotated[str, options.split("The judgements to tune on.")] = "dev",
    test_split: Annotated[
        str | None, typer.Option("--test-split", metavar="SPLIT", help="Evaluate on this split afterwards, once.")
    ] = None,
    measure: Annotated[
        str | None, options.measure("The measure to maximise; default: nDCG@10, for answers Success@100.")
    ] = None,
    index: Annotated[
        str | None, options.index_option("Tune the weight of the second model of a sum, in this index.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights", metavar="N,...", help="With --index: weights to try; default: the 19 of SPAR's paper."
        ),
    ] = None,
    depth: Annotated[int, options.depth("With --index: how many documents of each model are scored.")] = 100,
    regex: options.Regex = False,
    limit: options.Limit = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Tune parameters and weights of a model on a dev split.

    On a data set: k1, b and the weights of fields and sums; documents are indexed once. With --index: the weight of
    the second of two models, on data sets or questions with answers, by rescoring what either model retrieves.
    """
    from vizsla.cli.tune_parameters import tune_parameters
    from vizsla.cli.tune_weight import tune_weight

    if index is not None:
        if settings or test_split:
            raise VizslaError("--set and --test-split are for tuning without --index")
        tune_weight(index, sets, model, measure, weights, depth, regex, split, limit, data, as_json)
        return
    if weights is not None or regex or limit is not None:
        raise VizslaError("--weights, --regex and --limit need an index that holds both models; name it with --index")
    if len(sets) > 1:
        raise VizslaError("tune on one data set, not on several; with --index you can give several")
    tune_parameters(sets[0], model or "bm25", settings, split, test_split, measure or "nDCG@10", data, as_json)

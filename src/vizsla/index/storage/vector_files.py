"""The vectors of a segment as files: dense vectors, token vectors, posting lists that carry vectors, ANN indexes; and
the token sequences of a namespace with n-grams.

A segment is written with vectors in floats or 8 bits. A commit may add an ANN index to it, or the centroids and lists
of token vectors, and replace token vectors by residual codes; these files carry the number of the commit. A merge
copies codes. In the same way a commit adds suffix arrays to token sequences, which a merge copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vizsla.engine import (
    AnnIndex,
    Merge,
    ResidualCodec,
    ResidualRows,
    ScaledRows,
    Segment,
    SuffixArray,
    TokenLists,
    TokenRows,
    VectorPostings,
    VectorRows,
    build_ann_index,
    code_bytes,
    convert_rows,
    number_dtype,
    storage_of,
    token_store,
)
from vizsla.engine.posting_vectors import MergedVectorPostings, row_norms
from vizsla.index.storage import trust
from vizsla.index.storage.arrays import ArrayFile, Facts, HashedFile, map_file, read_array, write_array

# The names of files, each followed by the number of the namespace.
DENSE, CODES, SCALES = ROWS = "dense_", "codes_", "scales_"
ANN = "near_"
TOKENS = "tokens_"  # where the token vectors of each document begin; the vectors are in the files of dense ones
CENTROIDS, ASSIGNED = "centroids_", "assigned_"
RESIDUALS, FACTORS, MEANS = "residuals_", "factors_", "means_"
LIST_STARTS, LISTS = "liststarts_", "lists_"
TOKEN_INDEX = (CENTROIDS, ASSIGNED, RESIDUALS, FACTORS, MEANS, LIST_STARTS, LISTS)
"""What a commit may add to a segment with token vectors."""
_MATCH_LISTS = {"terms": "<u4", "starts": "<i8", "norms": "<f8", "documents": "<u4"}
"""The arrays of `VectorPostings` besides the vectors, and their types."""
_MATCH_ROWS = "match_vectors_", "match_codes_", "match_scales_"

NGRAMS, NGRAM_STARTS, SUFFIXES = "ngrams_", "ngramstarts_", "suffixes_"

ARRAY_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    **dict(zip((*ROWS, *_MATCH_ROWS), 2 * [(2, ("<f4", "<f2")), (2, ("|i1",)), (1, ("<f4",))], strict=True)),
    **{f"match_{part}_": (1, (kind,)) for part, kind in _MATCH_LISTS.items()},
    TOKENS: (1, ("<i8",)),
    CENTROIDS: (2, ("<f2", "<f4")),
    ASSIGNED: (1, ("<u2", "<u4")),
    RESIDUALS: (2, ("|u1",)),
    FACTORS: (1, ("<f4",)),
    MEANS: (1, ("<f4",)),
    LIST_STARTS: (1, ("<i8",)),
    LISTS: (1, ("<u4",)),
    NGRAMS: (1, ("<u2", "<u4")),
    NGRAM_STARTS: (1, ("<i8",)),
    SUFFIXES: (1, ("<u4",)),
}
"""The number of dimensions and the allowed types of each array."""


def are_complete(facts: Mapping[str, Facts]) -> bool:
    """Whether each namespace has all files of what it has any of, and its vectors once."""
    spaces = {kind: found.keys() for kind, found in _by_kind(facts).items()}
    plain, coded, tokens = spaces[DENSE] | spaces[CODES], spaces[RESIDUALS], spaces[TOKENS]
    matches = spaces[_MATCH_ROWS[0]] | spaces[_MATCH_ROWS[1]]
    return (
        spaces[CODES] == spaces[SCALES]
        and tokens <= plain | coded
        and not coded & plain
        and spaces[CENTROIDS] == spaces[ASSIGNED] == coded | spaces[LISTS]
        and coded == spaces[FACTORS] == spaces[MEANS]
        and spaces[LISTS] == spaces[LIST_STARTS]
        and spaces[CENTROIDS] <= tokens
        and spaces[_MATCH_ROWS[1]] == spaces[_MATCH_ROWS[2]]
        and all(spaces[f"match_{part}_"] == matches for part in _MATCH_LISTS)
        and spaces[SUFFIXES] <= spaces[NGRAMS] == spaces[NGRAM_STARTS]
    )


def _by_kind(facts: Mapping[str, Facts]) -> dict[str, dict[str, Facts]]:
    """The files with vectors by their kind, and by the number, as a text, of their namespace."""
    found: dict[str, dict[str, Facts]] = {kind: {} for kind in (*ARRAY_TYPES, ANN)}
    for name, f in facts.items():
        kind = name.rstrip("0123456789")
        if kind in found:
            found[kind][name.removeprefix(kind)] = f
    return found


# Writing a segment


def write_vectors(folder: Path, segment: Segment) -> dict[str, Facts]:
    """Write all vectors and token sequences of a new segment; returns the descriptions of the files."""
    written: dict[str, Facts] = {}
    for space, rows in segment.dense.items():
        written |= _write_rows(folder, ROWS, space, rows.shape, [rows], storage_of(rows))
    for space, lists in segment.matches.items():
        written |= _write_lists(folder, space, {part: getattr(lists, part) for part in _MATCH_LISTS})
        rows = lists.vectors
        written |= _write_rows(folder, _MATCH_ROWS, space, rows.shape, [rows], storage_of(rows))
    for space, tokens in segment.tokens.items():
        rows = tokens.vectors
        written |= _write_starts(folder, space, tokens.starts)
        written |= _write_rows(folder, ROWS, space, rows.shape, [rows], storage_of(rows))
    for space, sequences in segment.ngrams.items():
        written |= _write_sequences(folder, space, sequences.starts, sequences.tokens.dtype, [sequences.tokens])
    return written


def write_merged_vectors(folder: Path, merge: Merge, chunk: int, store: str) -> dict[str, Facts]:
    """Write all vectors of a merge, about `chunk` numbers at a time, dense ones as the type `store`."""
    written: dict[str, Facts] = {}
    for space in merge.old[0].dense:
        pieces = merge.dense_pieces(space, chunk)
        written |= _write_rows(folder, ROWS, space, merge.dense_shape(space), pieces, store)
    for space in merge.old[0].matches:
        written |= _write_merged_matches(folder, space, merge.matches(space), chunk, token_store(store))
    for space, tokens in merge.old[0].tokens.items():
        starts, pieces = merge.token_starts(space), merge.token_pieces(space, chunk)
        written |= _write_starts(folder, space, starts)
        coded = [r for s in merge.old if isinstance(r := s.tokens[space].vectors, ResidualRows)]
        if coded:
            codec = max(coded, key=len).codec
            written |= _write_residuals(folder, space, int(starts[-1]), pieces, codec)
        else:
            shape = (int(starts[-1]), tokens.width)
            written |= _write_rows(folder, ROWS, space, shape, pieces, token_store(store))
    for space in merge.old[0].ngrams:
        starts, pieces_of_tokens = merge.ngram_starts(space), merge.ngram_pieces(space, chunk)
        written |= _write_sequences(folder, space, starts, merge.ngram_type(space), pieces_of_tokens)
    return written


def _write_sequences(
    folder: Path, space: int, starts: np.ndarray, kind: np.dtype, pieces: Iterable[np.ndarray]
) -> dict[str, Facts]:
    """Write the token sequences of a namespace piece by piece, and where those of each document begin."""
    tokens, begins = f"{NGRAMS}{space}", f"{NGRAM_STARTS}{space}"
    with ArrayFile(folder / f"{tokens}.npy", kind, (int(starts[-1]),)) as out:
        for piece in pieces:
            out.write(piece)
    return {tokens: out.facts, begins: write_array(folder / f"{begins}.npy", starts.astype(np.int64, copy=False))}


def write_suffixes(folder: Path, space: int, generation: int, sequences: SuffixArray) -> dict[str, Facts]:
    """Sort the suffixes of token sequences and write them."""
    name = f"{SUFFIXES}{space}"
    return {name: write_array(folder / f"{name}-{generation}.npy", sequences.built().order)}


def _write_starts(folder: Path, space: int, starts: np.ndarray) -> dict[str, Facts]:
    """Write where the token vectors of each document begin."""
    return {f"{TOKENS}{space}": write_array(folder / f"{TOKENS}{space}.npy", starts.astype(np.int64, copy=False))}


def _write_rows(
    folder: Path, names: tuple[str, str, str], space: int, shape: tuple[int, ...], pieces: Iterable[VectorRows],
    store: str,
) -> dict[str, Facts]:  # fmt: skip
    """Write vectors piece by piece, as the type `store`; `names`: of the files of floats, of codes and of scales."""
    plain, codes, scales = names
    files: dict[str, tuple[np.dtype, tuple[int, ...]]]
    if store == "sq8":
        files = {codes: (np.dtype(np.int8), shape), scales: (np.dtype(np.float32), shape[:1])}
    else:
        files = {plain: (np.dtype(store), shape)}
    with ExitStack() as stack:
        out = {
            f"{name}{space}": stack.enter_context(ArrayFile(folder / f"{name}{space}.npy", *array))
            for name, array in files.items()
        }
        for piece in pieces:
            rows = convert_rows(piece, store)
            arrays = (rows.codes, rows.scales) if isinstance(rows, ScaledRows) else (np.asarray(rows),)
            for file, array in zip(out.values(), arrays, strict=True):
                file.write(array)
    return {name: file.facts for name, file in out.items()}


def _write_lists(folder: Path, space: int, arrays: Mapping[str, np.ndarray]) -> dict[str, Facts]:
    names = {part: f"match_{part}_{space}" for part in arrays}
    return {names[part]: write_array(folder / f"{names[part]}.npy", array) for part, array in arrays.items()}


def _write_merged_matches(
    folder: Path, space: int, lists: MergedVectorPostings, chunk: int, store: str
) -> dict[str, Facts]:
    """Write merged lists, about `chunk` numbers of vectors at a time, vectors as the type `store`."""
    norms, count = np.zeros(len(lists.terms)), int(lists.starts[-1])
    name = f"match_documents_{space}"
    with ArrayFile(folder / f"{name}.npy", np.dtype(np.uint32), (count,)) as documents:

        def pieces() -> Iterator[VectorRows]:
            for places, some, vectors in lists.pieces(chunk):
                documents.write(some)
                rows = convert_rows(vectors, store)
                np.maximum.at(norms, places, row_norms(rows))
                yield rows

        written = _write_rows(folder, _MATCH_ROWS, space, (count, lists.width), pieces(), store)
    written[name] = documents.facts
    return written | _write_lists(folder, space, {"terms": lists.terms, "starts": lists.starts, "norms": norms})


def _write_residuals(
    folder: Path, space: int, tokens: int, pieces: Iterable[VectorRows], codec: ResidualCodec
) -> dict[str, Facts]:
    """Write vectors in the codes of a codec, piece by piece; what is in these codes is copied."""
    width, bits = codec.centroids.shape[1], codec.bits
    files = {
        ASSIGNED: (np.dtype(number_dtype(len(codec.centroids))), (tokens,)),
        RESIDUALS: (np.dtype(np.uint8), (tokens, code_bytes(width, bits))),
        FACTORS: (np.dtype(np.float32), (tokens,)),
    }
    written = {
        f"{name}{space}": write_array(folder / f"{name}{space}.npy", array)
        for name, array in ((CENTROIDS, codec.centroids), (MEANS, codec.means))
    }
    with ExitStack() as stack:
        out = {
            name: stack.enter_context(ArrayFile(folder / f"{name}{space}.npy", *array)) for name, array in files.items()
        }
        for piece in pieces:
            same = isinstance(piece, ResidualRows) and piece.codec.same_as(codec)
            rows = piece if same and isinstance(piece, ResidualRows) else codec.encode(piece[:])
            for file, array in zip(out.values(), (rows.assigned, rows.codes, rows.scales), strict=True):
                file.write(array)
    return written | {f"{name}{space}": file.facts for name, file in out.items()}


# What a commit adds to a segment


def write_ann_index(folder: Path, space: int, generation: int, factory: str, rows: VectorRows) -> dict[str, Facts]:
    """Build and write the ANN index of the vectors of a namespace; `factory` is faiss's description of it."""
    with HashedFile(folder / f"{ANN}{space}-{generation}.faiss", {"built": factory}) as out:
        build_ann_index(factory, rows, out.put)
    trust.remember(out.facts["sha256"])
    return {f"{ANN}{space}": out.facts}


def write_token_index(folder: Path, space: int, generation: int, rows: TokenRows) -> dict[str, Facts]:
    """Write the centroids and lists of token vectors, and residual codes if they are stored in them."""
    lists = rows.lists
    assert lists is not None
    arrays = {
        CENTROIDS: lists.centroids,
        ASSIGNED: lists.assigned,
        LIST_STARTS: lists.starts,
        LISTS: lists.documents,
    }
    if isinstance(rows.vectors, ResidualRows):
        vectors = rows.vectors
        arrays |= {RESIDUALS: vectors.codes, FACTORS: vectors.scales, MEANS: vectors.codec.means}
    return {
        f"{name}{space}": write_array(folder / f"{name}{space}-{generation}.npy", array)
        for name, array in arrays.items()
    }


def without_token_index(facts: Mapping[str, Facts], space: int, *, vectors: bool) -> dict[str, Facts]:
    """The files of a segment without the centroids and lists of a namespace, and without its `vectors` if wanted."""
    kinds = (*TOKEN_INDEX, *(ROWS if vectors else ()))
    return {name: f for name, f in facts.items() if name not in {f"{kind}{space}" for kind in kinds}}


# Reading


class Vectors(NamedTuple):
    """The vectors of a segment by the places of their namespaces; see `Segment`."""

    dense: dict[int, VectorRows]
    ann: dict[int, AnnIndex]
    tokens: dict[int, TokenRows]
    matches: dict[int, VectorPostings]
    ngrams: dict[int, SuffixArray]


def read_vectors(path: Path, segment: str, facts: Mapping[str, Facts]) -> Vectors:
    """Map all vectors of a segment into memory; faiss opens ANN indexes at the first search."""
    files = _by_kind(facts)
    if not any(files.values()):
        return Vectors({}, {}, {}, {}, {})
    ann = {int(space): _read_ann_index(path, segment, f) for space, f in files.pop(ANN).items()}
    arrays = {
        kind: {int(space): read_array(path, segment, f) for space, f in own.items()} for kind, own in files.items()
    }
    dense = _rows(arrays, ROWS)
    tokens = {space: _token_rows(arrays, space, dense.pop(space, None)) for space in arrays[TOKENS]}
    matches = {
        space: VectorPostings(**{part: arrays[f"match_{part}_"][space] for part in _MATCH_LISTS}, vectors=rows)
        for space, rows in _rows(arrays, _MATCH_ROWS).items()
    }
    starts, suffixes = arrays[NGRAM_STARTS], arrays[SUFFIXES]
    ngrams = {s: SuffixArray(own, starts[s], suffixes.get(s)) for s, own in arrays[NGRAMS].items()}
    return Vectors(dense, ann, tokens, matches, ngrams)


_Arrays = Mapping[str, Mapping[int, np.ndarray]]
"""Arrays by the kind of their file and by namespace."""


def _rows(arrays: _Arrays, names: tuple[str, str, str]) -> dict[int, VectorRows]:
    plain, codes, scales = names
    return {**arrays[plain], **{space: ScaledRows(own, arrays[scales][space]) for space, own in arrays[codes].items()}}


def _token_rows(arrays: _Arrays, space: int, plain: VectorRows | None) -> TokenRows:
    """The token vectors of a namespace; `plain` are those in floats or 8 bits, if it has them."""
    own = {kind: by_space[space] for kind, by_space in arrays.items() if space in by_space}
    vectors = plain
    if RESIDUALS in own:
        codec = ResidualCodec(own[CENTROIDS], own[MEANS])
        vectors = ResidualRows(codec, own[ASSIGNED], own[RESIDUALS], own[FACTORS])
    assert vectors is not None
    lists = TokenLists(*(own[kind] for kind in (CENTROIDS, ASSIGNED, LIST_STARTS, LISTS))) if LISTS in own else None
    return TokenRows(vectors, own[TOKENS], lists)


def _read_ann_index(path: Path, segment: str, facts: Facts) -> AnnIndex:
    """Map an ANN index into memory; faiss opens it at the first search."""
    data = map_file(path, segment, facts)
    name = f"{path}: {segment}/{facts['file']}"
    return AnnIndex(data, facts["sha256"], facts["built"], name, trust.is_trusted)

"""The engine's innermost functions against what they are defined to do.

Python cannot call them in the built library, so numba compiles them here: `VIZSLA_KERNELS=jit`.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vizsla.engine import Weighting, Weightings
from vizsla.engine.blocks import OFFSET_MASK, RANGE_BITS, RANGE_SIZE, find_four, find_posting, with_bitmaps
from vizsla.engine.bounds import add_bitmap, add_few_of_bitmap, find_reaching
from vizsla.engine.intrinsics import bits_reaching, count_bits, first_bit, four_numbers, largest
from vizsla.kernels import njit

SEED = st.integers(0, 1 << 30)


@njit
def compare(numbers, at, threshold, out):
    """Put what `intrinsics.py` says of 64 numbers into `out`."""
    bits = bits_reaching(numbers, np.uint64(at), np.uint16(threshold))
    out[0], out[1], out[2] = bits, first_bit(bits), count_bits(bits)
    out[3], out[4] = largest(numbers, np.uint64(at)), four_numbers(numbers, np.uint64(at))


@njit
def find_each(postings, asked, four, each):
    """Find four offsets together, and each of them alone."""
    size = postings.size
    four[0], four[1], four[2], four[3] = find_four(postings, 0, size, asked[0], asked[1], asked[2], asked[3])
    for i in range(4):
        each[i] = find_posting(postings, 0, size, asked[i])


@given(seed=SEED, at=st.integers(0, 9), top=st.sampled_from([1, 2, 300, 0xFFFF]), threshold=st.integers(0, 0xFFFF))
def test_numbers_compared_together(seed: int, at: int, top: int, threshold: int) -> None:
    numbers = np.random.default_rng(seed).integers(0, top, 80, endpoint=True).astype(np.uint16)
    out = np.empty(5, np.uint64)
    threshold = threshold % (top + 2)
    compare(numbers, at, threshold, out)
    reaching = numbers[at : at + 64] >= np.uint16(threshold)
    assert int(out[0]) == sum(1 << int(place) for place in np.flatnonzero(reaching))
    assert out[1] == (np.argmax(reaching) if reaching.any() else 64)
    assert out[2] == reaching.sum()
    assert out[3] == numbers[at : at + 64].max()
    assert out[4] == numbers[at : at + 4].copy().view(np.uint64)[0]


@given(seed=SEED, share=st.sampled_from([0, 0.0001, 0.01, 0.5, 1]), threshold=st.integers(1, (1 << 15) - 1))
@settings(max_examples=60)
def test_sums_that_reach_are_found(seed: int, share: float, threshold: int) -> None:
    rng = np.random.default_rng(seed)
    sums = rng.integers(0, threshold, RANGE_SIZE).astype(np.uint16)
    sums[rng.random(RANGE_SIZE) < share] = rng.integers(threshold, 1 << 15)
    places = np.empty(RANGE_SIZE + 2, np.uint16)
    count = find_reaching(sums, threshold, places)
    assert places[:count].tolist() == np.flatnonzero(sums >= threshold).tolist()


@given(seed=SEED, size=st.integers(1, 300), offsets=st.lists(st.integers(0, OFFSET_MASK), min_size=4, max_size=4))
def test_four_postings_are_found_as_one_is(seed: int, size: int, offsets: list[int]) -> None:
    rng = np.random.default_rng(seed)
    found = np.sort(rng.choice(RANGE_SIZE, size, replace=False))
    postings = (found | rng.integers(0, 4, size) << RANGE_BITS).astype(np.uint16)
    asked = np.array([*offsets[:2], found[size // 2], found[-1]], np.uint16)
    four, each = np.empty(4, np.int64), np.empty(4, np.int64)
    find_each(postings, asked, four, each)
    assert four.tolist() == each.tolist()
    assert four.tolist() == [max(np.searchsorted(found, offset, "right") - 1, 0) for offset in asked]


def a_bitmap(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A bitmap, and the value of each document of its range."""
    rng = np.random.default_rng(seed)
    values = rng.choice(5, RANGE_SIZE, p=[0.6, 0.3, 0.05, 0.03, 0.02])
    found = np.flatnonzero(values)
    plain = (found | (values[found] - 1) << RANGE_BITS).astype(np.uint16)
    return with_bitmaps(np.array([0, len(plain)]), plain)[1], values


@given(seed=SEED, bounds=st.lists(st.integers(1, 5000), min_size=4, max_size=4).map(sorted))
@settings(max_examples=40)
def test_bitmaps_are_added_and_corrected(seed: int, bounds: list[int]) -> None:
    """The sums are above the bounds by length of all documents at first, and equal to them where they are corrected."""
    bitmap, values = a_bitmap(seed)
    rng = np.random.default_rng(seed)
    shares = np.array([1.0, 0.7, 0.2])  # of three lengths
    row = np.zeros(4 * 256, np.uint16)
    row[:12] = np.maximum(1, shares[:, None] * np.array(bounds)).astype(np.uint16).ravel()
    codes = rng.integers(0, 3, RANGE_SIZE).astype(np.uint8)
    before = rng.integers(0, 100, RANGE_SIZE).astype(np.uint16)
    exact = before + np.where(values, row[4 * codes.astype(np.int64) + np.maximum(values, 1) - 1], 0)
    sums = before.copy()
    add_bitmap(sums, bitmap, 0, row)
    assert (sums >= exact).all()
    assert (sums[values == 0] == before[values == 0]).all()
    assert (sums - before <= np.append(0, row[[0, 1, 3, 3]])[values]).all()
    w = Weightings.pack([Weighting(1.9, 0.3, 0.9, 0.1, np.linspace(0, 1, 256))])
    offsets = np.sort(rng.choice(RANGE_SIZE, 500, replace=False)).astype(np.uint16)
    add_few_of_bitmap(sums, bitmap, 0, len(bitmap), codes, 0, row, w, 0, offsets, True)
    assert (sums[offsets] == exact[offsets]).all()
    few = before.copy()
    add_few_of_bitmap(few, bitmap, 0, len(bitmap), codes, 0, row, w, 0, offsets, False)
    assert (few[offsets] == exact[offsets]).all()

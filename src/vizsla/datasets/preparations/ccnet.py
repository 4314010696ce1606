"""Text cut into documents of 500 tokens, as the BM26 paper cuts CCNet: all texts are concatenated first."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation
from vizsla.text.tokenizers import parse_tokenizer

TOKENS = 500
_CHARACTERS = 20_000  # that are cut into word pieces at once
_LONGEST = 50 * _CHARACTERS  # of a document; longer ones are one word without an end
_SOURCE = "github.com/facebookresearch/cc_net, or text of your own"
_FILES = tuple(
    PublishedFile(name, _SOURCE, required=False, several=True) for name in ("*.json", "*.jsonl", "*.ndjson", "*.txt")
)


@preparation("ccnet", *_FILES, help="the corpus: documents of 500 tokens, cut from your text")
def prepare_ccnet(given: GivenFiles, to: DatasetWriter) -> None:
    """Of JSON lines the text is `raw_content`, as CCNet writes it, or `text`; other files are plain text."""
    tokenizer = parse_tokenizer("wordpiece")
    rest = ""

    def cut(text: str, *, at_end: bool) -> str:
        """Write the documents in a text; give back what is left, for the text that follows."""
        tokens, start, count = tokenizer.tokens(text), 0, 0
        # Where a word begins: the first piece, or one that does not continue the piece before.
        begins = [not token.term.startswith("##") for token in tokens]
        while len(tokens) - count > TOKENS or (at_end and count < len(tokens)):
            end = min(count + TOKENS, len(tokens))
            while end < len(tokens) and not begins[end] and end > count + 1:
                end -= 1
            if end == count + 1 and end < len(tokens) and not begins[end]:
                end = min(count + TOKENS, len(tokens))  # one word of more pieces than a document has
            place = tokens[end].start if end < len(tokens) else len(text)
            to.document(str(to.documents), text[start:place].strip())
            start, count = place, end
        return text[start:]

    for file in given.all:
        for text in _texts(file):
            for first in range(0, len(text), _CHARACTERS):
                rest += text[first : first + _CHARACTERS]
                if len(rest) >= _CHARACTERS:
                    rest = cut(rest, at_end=len(rest) > _LONGEST)
            rest += "\n"
    cut(rest, at_end=True)


def _texts(file: GivenFile) -> Iterator[str]:
    if file.name.endswith(".txt"):
        yield from (text for _, text in file.lines())
        return
    for line, record in file.json_records():
        yield file.text(record.get("raw_content", record.get("text")), "raw_content", line)

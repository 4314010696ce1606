"""tantivy with positions, for bench/phrases.py: builds an index, then answers phrases line by line.

    python bench/peers/tantivy_phrases.py CORPUS FOLDER

Each line of standard input is a JSON list of phrases; the answer is a JSON list of [seconds of processor time, ids].
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import tantivy
from tantivy_ import CHAIN, chain

K = 10


def open_index(corpus: Path, folder: Path) -> tantivy.Index:
    """An index with positions, one segment for each of two writer threads; built if it does not exist."""
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("id", stored=True, tokenizer_name="raw")
    schema.add_text_field("body", tokenizer_name=CHAIN, index_option="position")
    if (folder / "meta.json").exists():
        index = tantivy.Index.open(str(folder))
        index.register_tokenizer(CHAIN, chain())
        return index
    folder.mkdir(parents=True, exist_ok=True)
    index = tantivy.Index(schema.build(), path=str(folder), reuse=False)
    index.register_tokenizer(CHAIN, chain())
    writer = index.writer(heap_size=1_000_000_000, num_threads=1)
    with corpus.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            document = tantivy.Document()
            document.add_text("id", record["_id"])
            document.add_text("body", record.get("title", "") + "\n" + record["text"])
            writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    return index


def main() -> None:
    index = open_index(Path(sys.argv[1]), Path(sys.argv[2]))
    index.reload()
    searcher = index.searcher()
    print(json.dumps({"documents": searcher.num_docs, "segments": searcher.num_segments}), flush=True)
    for line in sys.stdin:
        answers = []
        for phrase in json.loads(line):
            started = time.thread_time()
            query = index.parse_query(phrase, ["body"])
            found = searcher.search(query, limit=K, count=False).hits
            seconds = time.thread_time() - started
            answers.append([seconds, [searcher.doc(place)["id"][0] for _, place in found]])
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()

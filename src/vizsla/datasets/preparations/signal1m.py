"""Signal-1M related tweets as BEIR has it: tweets of September 2015, titles of news articles as queries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vizsla.datasets.preparations.trec import read_judgements
from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation

ARTICLES = PublishedFile("sample-1M.jsonl", "research.signal-ai.com/datasets/signal1m.html (on registration)")
JUDGEMENTS = PublishedFile(
    "signal1m_tweets_qrels", "research.signal-ai.com/datasets/signal1m-tweetir.html (on registration)"
)
_TWEETS = (
    "collect the tweets yourself: their ids are in github.com/igorbrigadir/newsir16-data, "
    "twitter/curated/201509-tweet-ids.txt.gz"
)
TWEETS_JSON = PublishedFile("*tweets*.jsonl", _TWEETS, required=False, several=True)
TWEETS_TABLE = PublishedFile("*tweets*.tsv", _TWEETS, required=False, several=True)

_LINK = re.compile(r"http\S+")
_EMOJI = re.compile("[\U0001f600-\U0001f64f\U0001f300-\U0001f5ff\U0001f680-\U0001f6ff\U0001f1e0-\U0001f1ff]+")
"""Emoticons, symbols and pictographs, transport and maps, flags: what BEIR's authors removed."""


@preparation(
    "signal1m",
    ARTICLES,
    JUDGEMENTS,
    TWEETS_JSON,
    TWEETS_TABLE,
    help="2,866,316 tweets without links and emoji; the titles of 97 articles as queries",
)
def prepare_signal1m(given: GivenFiles, to: DatasetWriter) -> None:
    """Tweets are tables of id and text, or JSON objects as Twitter gave them out; empty ones are left out."""
    judged_file = given.one(JUDGEMENTS.name)
    judgements = [one for one in read_judgements(judged_file) if one[2] > 0]
    tweets = [*given.every(TWEETS_JSON.name), *given.every(TWEETS_TABLE.name)]
    if not tweets:
        judged_file.refuse(f"signal1m also needs the tweets, as {TWEETS_JSON.name} or {TWEETS_TABLE.name}; {_TWEETS}")
    wanted = {document for _, document, _ in judgements}
    for file in tweets:
        for key, text in _tweets(file):
            cleaned = _LINK.sub("", _EMOJI.sub("", text).replace("\n", "")).strip()
            if cleaned:
                wanted.discard(key)
                to.document(key, cleaned)
    articles = given.one(ARTICLES.name)
    queries = dict.fromkeys(query for query, _, _ in judgements)
    found = set()
    for line, article in articles.json_lines():
        key = articles.text(article.get("id"), "id", line)
        if key in queries and key not in found:
            found.add(key)
            to.query(key, " ".join(articles.text(article.get("title"), "title", line).split()))
    if len(found) < len(queries):
        absent = next(query for query in queries if query not in found)
        judged_file.refuse(f"{articles.name} lacks {len(queries) - len(found)} judged articles, such as {absent}")
    for query, document, grade in judgements:
        to.judgement("test", query, document, grade)
    if wanted:
        to.remark(f"{len(wanted):,} of the judged tweets are missing; deleted tweets are not available")


def _tweets(file: GivenFile) -> Iterator[tuple[str, str]]:
    """Ids and texts of the tweets of a file."""
    if file.published is TWEETS_TABLE:
        for _, (key, text) in file.columns("id", "text", header=("id", "text")):
            yield key.strip(), text
        return
    for line, tweet in file.json_lines():
        key = tweet.get("id_str") or str(tweet.get("id") or tweet.get("_id") or "")
        if not key:
            file.refuse("this tweet has no id (id_str)", line)
        yield str(key), file.text(tweet.get("full_text") or tweet.get("text"), "text", line)

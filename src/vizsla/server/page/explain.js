// Why a document has its score: each term's part as a bar, grouped by the parts of a sum.
import { api } from "./api.js";
import { el, fill, meter, number, plural, score } from "./dom.js";

const TOKENS = 1000; // of a document are shown
const ROWS = 30; // of terms; learned models have many more
const ADDED = 8; // of terms that were added

/** Opens or closes the explanation under a result. */
export async function toggleExplanation(node, button, hit, ctx) {
	const open = node.querySelector(".why-box");
	if (open) {
		open.remove();
		return button.setAttribute("aria-expanded", false);
	}
	const box = el("section.why-box", { "aria-label": "Why this result" }, el("p.quiet-text", "Looking …"));
	node.querySelector(".body").append(box);
	button.setAttribute("aria-expanded", true);
	try {
		const { query, syntax, filter, model, expand } = ctx.request;
		const explanation = hit.explanation ?? (await api.explain(ctx.info.name, { query, syntax, id: hit.id, filter, model, expand })).explanation;
		fill(box, ...explanationNodes(explanation, hit, ctx.info));
	} catch (e) {
		fill(box, el("p.wrong", e.message));
	}
}

/** The parts of a score that have terms, tokens or a cosine; a sum has several. */
const isLeaf = (p) => ["term", "query_token", "token"].some((kind) => kind in p);
const groupsOf = (node) => (node.parts?.length && !node.parts.some(isLeaf) ? node.parts.flatMap(groupsOf) : [node]);

const percent = (part, whole) => `${Math.round((100 * part) / whole)} %`;
const list = (items) => items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;

/** The words of the query that a term comes from; none of one that was added, or that has no place in the query. */
const wordsOf = (t) => t.words ?? [];
/** What a term is called: a stem by the words that were typed, a piece of a word and an added term as they are. */
const nameOf = (t) => (t.piece || !wordsOf(t).length ? t.term ?? t.name : list(wordsOf(t)));
/** Who added a term: learned models weigh terms, and query expansion adds them to words that are counted. */
const adder = (t) => (t.counted ? "query expansion" : "the model");

function explanationNodes(explanation, hit, info) {
	const groups = groupsOf(explanation).filter((g) => g.score || g.parts?.length || "cosine" in g);
	const total = explanation.score;
	const sum = groups.reduce((s, g) => s + Math.max(g.score, 0), 0);
	const leaves = groups.flatMap((g) => (g.parts?.length ? g.parts : [g]));
	const most = Math.max(...leaves.map((l) => Math.abs(l.score)), 1e-12);
	return [
		el("p.sentence", sentence(leaves, sum || 1)),
		groups.map((g) => groupNode(g, groups.length > 1, most, sum || 1, info)),
		el("p.quiet-text", { title: `Score ${total}` }, `Score ${score(total)}`,
			Math.abs(total - hit.score) > 1e-3 * Math.max(1, Math.abs(total)) ? ` before reranking or fusion; ranked with ${score(hit.score)}` : ""),
	];
}

/** What a part of the score is called in a sentence; all pieces of a word are that word. */
function sourceOf(l) {
	if (!("term" in l)) return isLeaf(l) ? `“${l.name}”` : `the vectors of ${l.name}`;
	const name = `“${wordsOf(l).length ? list(wordsOf(l)) : l.term}”`;
	if (l.reason) return `${name} (${l.reason})`;
	return l.added ? `${name}, which ${adder(l)} added` : name;
}

function sentence(leaves, sum) {
	const sources = new Map();
	for (const l of leaves) sources.set(sourceOf(l), (sources.get(sourceOf(l)) ?? 0) + l.score);
	const best = [...sources].filter(([, score]) => score > 0).sort((a, b) => b[1] - a[1]);
	if (!best.length) return "Nothing of the query is in this document.";
	const top = best.slice(0, best[0][1] > 0.7 * sum ? 1 : 2);
	const share = percent(top.reduce((s, [, score]) => s + score, 0), sum);
	const said = best.length === 1 ? `The score comes from ${best[0][0]} alone.` : `${share} of the score comes from ${list(top.map(([name]) => name))}.`;
	return said + addedSentence(leaves) + missingSentence(leaves);
}

function addedSentence(leaves) {
	const found = leaves.filter((l) => l.added && l.score > 0);
	const [words, terms] = [found.filter((l) => l.counted).length, found.filter((l) => !l.counted).length];
	return (words ? ` Query expansion added ${plural(words, "word")} found here.` : "") + (terms ? ` The model added ${plural(terms, "term")} found here.` : "");
}

/** Counts words that were typed: one of which a piece, or one of several parts of a sum, is here does match. */
function missingSentence(leaves) {
	const here = new Map();
	for (const l of leaves.filter((l) => "term" in l && !l.added)) {
		for (const word of wordsOf(l).length ? wordsOf(l) : [l.term]) here.set(word, here.get(word) || Boolean(l.score));
	}
	const missing = [...here.values()].filter((is) => !is).length;
	return missing ? ` ${plural(missing, "word")} of the query ${missing === 1 ? "does" : "do"} not match.` : "";
}

function groupNode(group, several, most, sum, info) {
	const weight = group.weight != null && group.weight !== 1 ? ` × ${group.weight}` : "";
	const head = several && el("h4", el("span.mono", group.name, weight),
		el("span.share", { title: `${group.score}` }, `${score(group.score)} · ${percent(Math.max(group.score, 0), sum)}`));
	if (!group.parts?.length) return el("div.group", head, denseRow(group, most));
	const found = group.parts.filter((t) => t.score).sort((a, b) => b.score - a.score);
	const added = found.filter((t) => t.added).slice(0, ADDED);
	const shown = found.filter((t) => !t.added || added.includes(t)).slice(0, ROWS);
	const rest = found.filter((t) => !shown.includes(t));
	const absent = group.parts.filter((t) => !t.score);
	const unused = absent.filter((t) => t.added);
	const plain = absent.filter((t) => !t.added);
	return el("div.group", head, group.document_tokens && tokensNode(group),
		el("dl.terms", shown.map((t) => termRow(t, most, info))),
		rest.length > 0 && el("details", el("summary.absent", `${plural(rest.length, "more term")}: ${score(rest.reduce((s, t) => s + t.score, 0))} together`),
			el("dl.terms", rest.map((t) => termRow(t, most, info)))),
		plain.length > 0 && el("p.absent", "No match: ", plain.slice(0, 20).map((t, i) =>
			[i ? ", " : "", el("b", nameOf(t)), ` (${[pieceOf(t), absence(t)].filter(Boolean).join(", ")})`])),
		unused.length > 0 && el("p.absent", `${plural(unused.length, unused[0].counted ? "word" : "term")} that ${adder(unused[0])} added ${unused.length === 1 ? "is" : "are"} not here.`));
}

const pieceOf = (t) => (t.piece ? `a piece of ${list(wordsOf(t))}` : "");

/** Gives a node the colour of a query token; special ones such as [MASK] have none of their own. */
function coloured(node, token) {
	node.classList.add("token");
	if (!token.name.startsWith("[")) node.style.setProperty("--hue", token.hue);
	return node;
}

/** The tokens of a document, each in the colour of the query token that it gave most to. */
function tokensNode(group) {
	const met = new Map();
	group.parts.forEach((token, i) => {
		token.hue = Math.round(i * 137.5) % 360;
		met.set(token.position, [...(met.get(token.position) ?? []), token].sort((a, b) => b.score - a.score));
	});
	const nodes = group.document_tokens.slice(0, TOKENS).map((name, i) => {
		const [best, ...others] = met.get(i + 1) ?? [];
		const text = name.replace(/^##/, "");
		const said = best && [best, ...others].map((token) => `${token.name} ${token.similarity.toFixed(3)}`).join("\n");
		return [i && text === name ? " " : "", best ? coloured(el("span", { title: said }, text), best) : text];
	});
	return el("p.tokens", { dir: "auto" }, nodes, group.document_tokens.length > TOKENS && " …");
}

function absence(t) {
	if (t.in_query === 0) return "dropped from the query";
	return t.documents_with_term === 0 ? "in no document" : "not in this one";
}

function termRow(t, most, info) {
	const word = nameOf(t);
	const unit = t.unit ?? "document";
	const rarity = t.documents_with_term != null && `in ${number(t.documents_with_term)} of ${plural(info[`${unit}s`], unit)}`;
	const times = t.counted && t.in_document ? (t.in_document === 1 ? "once here" : `${number(t.in_document)} times here`) : "";
	const exact = t.query_weight != null ? `${score(t.score)} = ${t.query_weight.toFixed(4)} (query) × ${t.document_weight.toFixed(4)} (document)` : String(t.score);
	const met = t.document_token ? `meets ${t.document_token}` : "";
	const stem = t.term && word.toLowerCase() !== t.term ? `indexed as ${t.term}` : "";
	return el("div.term", { title: [exact, stem].filter(Boolean).join("\n") },
		el("dt", "hue" in t ? coloured(el("bdi", word), t) : el("bdi", word)),
		el("dd", meter(Math.max(0.005, Math.abs(t.score) / most), t.added ? ".added" : t.score < 0 ? ".minus" : ""), el("span.part", score(t.score)),
			el("small", t.added && el("span.tag", t.reason ?? (t.counted ? "added" : "added by the model")), [pieceOf(t), times, rarity, met, stem].filter(Boolean).join(" · "))));
}

function denseRow(part, most) {
	if (!("cosine" in part)) return el("dl.terms", termRow(part, most, {}));
	return el("dl.terms", el("div.term", { title: `cosine ${part.cosine}` },
		el("dt", "similar in meaning"),
		el("dd", meter(Math.abs(part.score) / most, ".dense"), el("span.part", score(part.score)),
			el("small", `cosine ${part.cosine.toFixed(3)} of two vectors of ${number(part.dimensions)} numbers`))));
}

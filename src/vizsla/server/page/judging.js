// Judging: grades on results, the drawer of judged queries, exports and measures.
import { api, download } from "./api.js";
import { button, cut, el, fill, icon, meter, number, plural, toast } from "./dom.js";
import { showPanel } from "./panel.js";
import { change, get, sideOf } from "./state.js";

const MEASURES = ["nDCG@10", "P@5", "R@10", "RR"];
const MEANING = {
	"nDCG@10": "How good the order of the first ten is, from 0 to 1",
	"P@5": "Share of the first five that are relevant",
	"R@10": "Share of the relevant documents that are in the first ten",
	RR: "One over the rank of the first relevant document",
};
export const GRADES = ["not relevant", "relevant", "very relevant", "perfect"];

let info = null;
let grades = {};
let gradesOf = null;
let loads = 0;
let judgedMeanwhile = {};

export const useIndex = (chosen) => { info = chosen; };

/** The grades of the query on the page, as the server has them. */
export async function loadGrades(index, query) {
	const key = JSON.stringify([index, query]);
	if (gradesOf !== key) { grades = {}; gradesOf = key; paint(); }
	const load = ++loads;
	judgedMeanwhile = {};
	const answer = await api.judgements(index, query);
	if (load !== loads) return;
	grades = answer.grades ?? {};
	for (const [id, grade] of Object.entries(judgedMeanwhile)) put(id, grade); // the answer may be older than these
	paint();
}

export const gradeOf = (id) => (Object.hasOwn(grades, id) ? grades[id] : null);

/** Thumbs of a result. */
export function gradeButtons(id) {
	const node = el("span.grades", { role: "group", "aria-label": "Judge", data: { judge: id } },
		button(".quiet.thumb", () => judge(id, gradeOf(id) > 0 ? null : 1), { title: "Relevant (1)", "aria-label": "Relevant" }, icon("up"), el("span")),
		button(".quiet.thumb", () => judge(id, gradeOf(id) === 0 ? null : 0), { title: "Not relevant (0)", "aria-label": "Not relevant" }, icon("down")));
	paintOne(node);
	return node;
}

/** All four grades, for the document's panel. */
export function gradeScale(id) {
	const node = el("div.scale", { role: "group", "aria-label": "Judge this document for the query", data: { judge: id } },
		GRADES.map((name, grade) => button(".button", () => judge(id, gradeOf(id) === grade ? null : grade), { title: `${name} (${grade})`, data: { grade } }, el("b", grade), name)));
	paintOne(node);
	return node;
}

export async function judge(id, grade) {
	const { q } = get();
	if (!q) return;
	const before = gradeOf(id);
	set(id, grade);
	try {
		await api.judge(info.name, q, id, grade);
		toast(grade === null ? "Judgement taken back" : `Judged ${GRADES[grade]}`);
		if (get().drawer) showDrawer();
	} catch (e) {
		set(id, before);
		toast(e.message);
	}
}

function set(id, grade) {
	judgedMeanwhile[id] = grade;
	put(id, grade);
	paint();
}

function put(id, grade) {
	if (grade === null) delete grades[id];
	else grades[id] = grade;
}

function paint() {
	for (const node of document.querySelectorAll("[data-judge]")) paintOne(node);
}

function paintOne(node) {
	const grade = gradeOf(node.dataset.judge);
	if (node.classList.contains("scale")) {
		for (const b of node.children) b.setAttribute("aria-pressed", Number(b.dataset.grade) === grade);
		return;
	}
	const [up, down] = node.children;
	up.setAttribute("aria-pressed", grade > 0);
	down.setAttribute("aria-pressed", grade === 0);
	up.lastChild.textContent = grade > 1 ? grade : "";
}

/** The drawer: judged queries, exports, measures of the models on the page. */
export async function showDrawer() {
	const index = info.name;
	const body = el("div", el("p.quiet-text", "Looking …"));
	showPanel("Judgements", body, () => change({ drawer: false }, false), "drawer");
	try {
		const { queries } = await api.judgements(index);
		if (!queries.length) return fill(body, emptyDrawer());
		const table = el("div.measures", el("p.quiet-text", "Measuring …"));
		fill(body, table, el("h3", plural(queries.length, "judged query", "judged queries")), queryList(queries), exports(index));
		await showMeasures(table, index, queries);
	} catch (e) {
		fill(body, el("p.wrong", e.message));
	}
}

function emptyDrawer() {
	return el("div.empty", el("p", "No query is judged yet."),
		el("p.quiet-text", "Search, then mark results with the thumbs, or with the keys ", el("kbd", "1"), " and ", el("kbd", "0"),
			". A handful of queries is enough to compare two models by a number."));
}

function queryList(queries) {
	return el("ul.judged", queries.map((q) => el("li",
		button(".option", () => change({ q: q.query, like: "", page: 1, doc: "" }),
			el("span", { dir: "auto" }, cut(q.query, 120)),
			el("small", `${number(q.relevant)} relevant of ${number(q.judged)}`)))));
}

function exports(index) {
	const file = (kind, name) => button(".button", () => download(index, `judgements/${kind}`, `${index}-${name}`).catch((e) => toast(e.message)), `Export ${kind}`);
	return el("div.row", file("qrels", "qrels.txt"), file("queries", "queries.jsonl"));
}

async function showMeasures(node, index, queries) {
	const { a, b } = get();
	const sides = b ? [a, b] : [a];
	const answer = await api.measures(index, { models: sides.map(sideOf), measures: MEASURES, depth: 100 });
	fill(node, ...measureNodes(answer, queries));
}

function measureNodes({ models, measures }, queries) {
	const two = models.length > 1;
	const value = (v) => (v == null ? "–" : v.toFixed(3));
	const rows = measures.map((m) => {
		const [x, y] = models.map((r) => r.mean[m]);
		return el("tr", el("th", { title: MEANING[m] }, m), el("td", value(x)),
			two && [el("td", value(y)), el(`td${y > x ? ".better" : y < x ? ".worse" : ""}`, difference(x, y))]);
	});
	const heads = models.map((r, i) => el("th", { title: r.model }, two && el("span.side-mark", "AB"[i]), el("span.mono", cut(r.model, 22))));
	const unjudged = models.map((r, i) => `${two ? `${"AB"[i]} ` : ""}${Math.round(100 * r.unjudged)} %`).join(", ");
	const worst = Math.max(...models.map((r) => r.unjudged));
	return [
		el("table", el("thead", el("tr", el("th", el("span.sr", "Measure")), heads, two && el("th", "B − A"))), el("tbody", rows)),
		el(`p.quiet-text${worst > 0.3 ? ".warn" : ""}`, worst > 0
			? `Of the first ten results, ${unjudged} are not judged. They count as not relevant, so the values are too low${two && worst > 0.1 ? " and may favour the model you judged with" : ""}.`
			: "Every one of the first ten results is judged."),
		queries.length < 20 && el("p.quiet-text", `${plural(queries.length, "judged query", "judged queries")}: a hint, not proof.`),
		perQuery(models, queries, two),
	];
}

const difference = (x, y) => (x == null || y == null ? "–" : `${y >= x ? "+" : "−"}${Math.abs(y - x).toFixed(3)}`);

function perQuery(models, queries, two) {
	const row = (q) => {
		const values = models.map((r) => r.per_query[q.qid]?.["nDCG@10"]);
		return el("tr", el("th", { dir: "auto" }, cut(q.query, 60)), values.map((v) => el("td", v == null ? "–" : v.toFixed(2), meter(v))));
	};
	return el("details", el("summary", "nDCG@10 of each query"),
		el("table.per-query", el("thead", el("tr", el("th", "Query"), models.map((_, i) => el("th", two ? "AB"[i] : "nDCG@10")))),
			el("tbody", queries.map(row))));
}

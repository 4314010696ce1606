// Two models side by side: what moved, and lines between the same documents.
import { button, el, number, svg } from "./dom.js";
import { picker } from "./models.js";
import { hitNodes } from "./results.js";

export const DEPTH = 100;

function badge(rank, other, name) {
	if (other === undefined) return el("span.move.new", { title: `Not in the first ${DEPTH} of ${name}` }, name === "A" ? "new" : "gone");
	const step = other - rank;
	const text = step === 0 ? "=" : `${step > 0 ? "▲" : "▼"}${Math.abs(step)}`;
	return el(`span.move${step > 0 ? ".up" : step < 0 ? ".down" : ""}`, { title: step === 0 ? `The same rank in ${name}` : `Rank ${other} in ${name}` }, text);
}

/** Both columns. `sides`: for a and b the page's answer, the ranks of the first DEPTH by id, and what results need. */
export function compareNodes(sides, info, chosen, onTab) {
	const { ranks: rankA } = sides.a;
	const { ranks: rankB } = sides.b;
	const column = (key, label, theirs, other) => el(`section.column.${key}`, { "aria-label": `Model ${label}` },
		el("div.column-head", picker(key, info, label)),
		sides[key].page.hits.length ? hitNodes(sides[key].page, { ...sides[key].ctx, moves: (hit) => badge(hit.rank, theirs.get(hit.id), other) }) : el("p.empty", "No results."));
	const lines = svg("svg", { class: "lines", "aria-hidden": true });
	const grid = el("div.columns", { data: { tab: chosen } }, column("a", "A", rankB, "B"), lines, column("b", "B", rankA, "A"));
	const tab = (key, text) => button("", (e) => {
		grid.dataset.tab = key;
		for (const t of e.currentTarget.parentNode.children) t.setAttribute("aria-selected", t === e.currentTarget);
		onTab(key);
	}, { role: "tab", "aria-selected": chosen === key }, text);
	link(grid, lines);
	return [
		el("p.summary", summary(rankA, rankB)),
		el("div.tabs", { role: "tablist", "aria-label": "Model" }, tab("a", "Model A"), tab("b", "Model B")),
		grid,
	];
}

function summary(rankA, rankB) {
	const first = (m) => [...m].filter(([, r]) => r <= 10).map(([id]) => id);
	const [a, b] = [first(rankA), first(rankB)];
	const same = b.filter((id) => a.includes(id)).length;
	const size = Math.max(a.length, b.length);
	if (!size) return "";
	const still = b.filter((id) => rankA.get(id) === rankB.get(id)).length;
	const rise = (id) => (rankA.get(id) ?? DEPTH + 1) - rankB.get(id);
	const risen = b.sort((x, y) => rise(y) - rise(x))[0];
	const out = [el("b", `${same} of the first ${size} are the same`), ` (overlap@10 ${number(same / size, 2)})`];
	if (still === size) return [...out, ", in the same order."];
	out.push(`, ${still} at the same rank`);
	if (rise(risen) > 0) out.push(rankA.has(risen) ? `; the largest rise in B is ▲${rise(risen)}` : `; B shows one that is not in A's first ${DEPTH}`);
	return [...out, "."];
}

/** Draws a curve between the places of each document; both light up on hover or focus. */
function link(grid, lines) {
	const draw = () => {
		const area = lines.getBoundingClientRect();
		if (!area.width) return;
		const at = (node) => node.querySelector(".rank").getBoundingClientRect().top + 10 - area.top;
		const right = new Map([...grid.querySelectorAll(".b .hit")].map((n) => [n.dataset.id, n]));
		lines.replaceChildren(...[...grid.querySelectorAll(".a .hit")].filter((n) => right.has(n.dataset.id)).map((n) => {
			const [y1, y2, w] = [at(n), at(right.get(n.dataset.id)), area.width];
			return svg("path", { d: `M0 ${y1} C ${w / 2} ${y1}, ${w / 2} ${y2}, ${w} ${y2}`, "data-id": n.dataset.id });
		}));
	};
	const light = (id) => {
		for (const n of grid.querySelectorAll(".hit, .lines path")) n.classList.toggle("linked", id !== null && n.dataset.id === id);
	};
	const idOf = (e) => e.target.closest?.(".hit")?.dataset.id ?? null;
	grid.addEventListener("pointerover", (e) => light(idOf(e)));
	grid.addEventListener("pointerleave", () => light(null));
	grid.addEventListener("focusin", (e) => light(idOf(e)));
	const watch = new ResizeObserver(() => (grid.isConnected ? draw() : watch.disconnect()));
	for (const column of grid.querySelectorAll(".column")) watch.observe(column);
}

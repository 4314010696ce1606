// Shortcuts. They rest while a field is being typed in.
import { $ } from "./dom.js";
import { showHelp } from "./help.js";
import { judge } from "./judging.js";
import { closePanel, panelKind } from "./panel.js";

const hits = (side) => [...document.querySelectorAll("#results .hit")].filter((n) => n.offsetParent && (!side || n.dataset.side === side));
const current = () => document.querySelector(".hit.current");
const press = (id) => $(id)?.offsetParent && $(id).click();

function focusHit(node) {
	if (!node) return;
	node.querySelector(".title").focus({ preventScroll: true });
	node.scrollIntoView({ block: "nearest" });
	if (panelKind() === "document") node.querySelector(".title").click();
}

function move(step) {
	const now = current();
	const all = hits(now?.dataset.side ?? hits()[0]?.dataset.side);
	focusHit(all[Math.max(0, Math.min(all.length - 1, all.indexOf(now) + step))]);
}

function across(side) {
	const now = current();
	const others = hits(side);
	if (now) focusHit(others.find((n) => n.dataset.id === now.dataset.id) ?? others[hits(now.dataset.side).indexOf(now)]);
}

function judgeCurrent(grade) {
	const place = panelKind() === "document" ? $("panel") : current();
	const id = place?.querySelector("[data-judge]")?.dataset.judge;
	if (id !== undefined) judge(id, grade);
}

export const KEYS = [
	["/", "search", () => { $("query").focus(); $("query").select(); }],
	["j ↓", "next result", () => move(1)],
	["k ↑", "result before", () => move(-1)],
	["h l", "column A, column B", (key) => across(key === "h" ? "a" : "b")],
	["Enter", "open the document"],
	["e", "why this result", () => current()?.querySelector(".why")?.click()],
	["1 2 3", "judge relevant", (key) => judgeCurrent(Number(key))],
	["0", "judge not relevant", () => judgeCurrent(0)],
	["x", "take the judgement back", () => judgeCurrent(null)],
	["[ ]", "page back, page on", (key) => press(key === "[" ? "page-back" : "page-next")],
	["f", "filters", () => press("filters")],
	["s", "order of the results", () => $("sort")?.focus()],
	["c", "compare two models", () => press("compare")],
	["m", "judgements and measures", () => press("judging")],
	["t", "dark or light", () => press("theme")],
	["Esc", "close"],
	["?", "this help", () => showHelp("Keyboard")],
];
const ARROWS = { ArrowDown: "↓", ArrowUp: "↑" };

function onKey(e) {
	if (e.defaultPrevented || e.isComposing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open], :popover-open")) return;
	const typing = /^(INPUT|SELECT)$/.test(e.target.tagName);
	if (e.key === "Escape") {
		if (document.body.classList.contains("rail-open")) document.body.classList.remove("rail-open");
		else if ((panelKind() === "beside" || !closePanel()) && typing) e.target.blur();
		return;
	}
	if (typing && !(e.target.id === "query" && e.key === "ArrowDown")) return;
	if (e.key in ARROWS && e.target.closest?.(".panel")) return;  // arrows scroll the panel
	const key = ARROWS[e.key] ?? e.key;
	const action = KEYS.find(([keys]) => keys.split(" ").includes(key))?.[2];
	if (!action) return;
	e.preventDefault();
	action(key);
}

export function setUpKeyboard() {
	document.addEventListener("keydown", onKey);
	document.addEventListener("focusin", (e) => {
		const hit = e.target.closest?.(".hit");
		if (!hit) return;
		current()?.classList.remove("current");
		hit.classList.add("current");
	});
}

// Making elements. Texts only ever become text nodes, so nothing a document holds can run.

export const $ = (id) => document.getElementById(id);

/** el("p.note", {title: "x", onclick: f}, "text", child): the properties may be left out, and so are null and false. */
export function el(kind, ...children) {
	const [tag, ...classes] = kind.split(".");
	const node = document.createElement(tag);
	if (classes.length) node.className = classes.join(" ");
	const props = children[0]?.constructor === Object ? children.shift() : {};
	for (const [name, value] of Object.entries(props)) {
		if (name.startsWith("aria-")) node.setAttribute(name, value);
		else if (value == null || value === false) continue;
		else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
		else if (name === "data") Object.assign(node.dataset, value);
		else node.setAttribute(name, value === true ? "" : value);
	}
	return fill(node, children);
}

export function button(kind, onclick, ...children) {
	const node = el(`button${kind}`, ...children);
	node.type = "button";
	node.addEventListener("click", onclick);
	return node;
}

/** A bar that is filled to a share from 0 to 1. */
export function meter(share, kind = "") {
	const bar = el(`i${kind}`);
	bar.style.width = `${100 * Math.max(0, Math.min(1, share || 0))}%`;
	return el("span.meter", { "aria-hidden": true }, bar);
}

export function fill(node, ...children) {
	node.replaceChildren(...children.flat(9).filter((c) => c != null && c !== false));
	return node;
}

const SHAPES = {
	search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM20.5 20.5 16 16",
	close: "M6 6l12 12M18 6 6 18",
	up: "M7 11v9M7 11l4-7.5c1.6 0 2.5 1 2.5 2.5V10h5a2 2 0 0 1 2 2.3l-1 6a2 2 0 0 1-2 1.7H7M7 11H4v9h3",
	down: "M7 13V4M7 13l4 7.5c1.6 0 2.5-1 2.5-2.5V14h5a2 2 0 0 0 2-2.3l-1-6A2 2 0 0 0 17.5 4H7M7 13H4V4h3",
	link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7L12 7M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7L12 17",
	theme: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
	help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.5v.1M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
	judge: "M4 6.5l1.5 1.5L8 5M4 12.5 5.5 14 8 11M4 18.5 5.5 20 8 17M12 6.5h8M12 12.5h8M12 18.5h8",
	compare: "M4 5h6v14H4zM14 5h6v14h-6z",
	why: "M4 20V10M10 20V4M16 20v-7M22 20H2",
	filter: "M4 6h16M7 12h10M10 18h4",
	next: "M9 5l7 7-7 7",
	back: "M15 5l-7 7 7 7",
	chevron: "M6 9l6 6 6-6",
	similar: "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM15 10a5 5 0 1 1 0 10 5 5 0 0 1 0-10z",
};

export function svg(tag, attributes, ...children) {
	const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
	for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
	node.append(...children);
	return node;
}

export const icon = (name) => svg("svg", { viewBox: "0 0 24 24", "aria-hidden": true }, svg("path", { d: SHAPES[name] }));

/** A text cut for display at a number of code points. */
export function cut(text, length) {
	text = String(text);
	if (text.length <= length) return text;
	return Array.from(text.slice(0, 2 * length)).slice(0, length).join("") + "…";
}

/** A text with places marked; places count code points, as the server's do. Neighbours are marked as one. */
export function marked(text, matches) {
	const points = Array.from(text);
	const out = [];
	let at = 0;
	for (const [start, end] of matches) {
		if (start < at || end > points.length) continue;
		const between = points.slice(at, start).join("");
		const word = points.slice(start, end).join("");
		if (out.length && /^\s?$/.test(between)) out.at(-1).append(between, word);
		else out.push(between, el("mark", word));
		at = end;
	}
	return [...out, points.slice(at).join("")];
}

export const number = (n, digits = 0) =>
	Number(n).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** A score with as many digits as say something. */
export function score(n) {
	const size = Math.abs(n);
	return number(n, size >= 100 ? 1 : size >= 1 || size === 0 ? 2 : 4);
}

export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

let timer;
export function toast(text) {
	const node = $("toast");
	node.textContent = text;
	node.classList.add("shown");
	clearTimeout(timer);
	timer = setTimeout(() => node.classList.remove("shown"), 2600);
}

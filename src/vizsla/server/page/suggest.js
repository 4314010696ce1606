// Words to complete what is typed: a small list below the word, as the ARIA combobox pattern has it.
import { api } from "./api.js";
import { $, el, number } from "./dom.js";

const WAIT = 90;
const SIZE = 7;

export function setUpSuggestions(indexName, onAccept) {
	const input = $("query");
	const box = $("suggestions");
	let words = [];
	let at = -1;
	let timer = null;
	let asked = null;

	const lastWord = () => /[\p{L}\p{N}_'’-]+$/u.exec(input.value)?.[0] ?? "";

	const close = () => {
		clearTimeout(timer);
		asked?.abort();
		words = [];
		choose(-1);
		box.hidden = true;
		input.setAttribute("aria-expanded", false);
	};

	const choose = (i) => {
		at = i;
		[...box.children].forEach((node, n) => node.setAttribute("aria-selected", n === at));
		input.setAttribute("aria-activedescendant", at < 0 ? "" : `suggestion-${at}`);
	};

	const accept = (i) => {
		const typed = lastWord();
		input.value = input.value.slice(0, input.value.length - typed.length) + words[i].text + " ";
		close();
		input.focus();
		onAccept(input.value);
	};

	const place = () => {
		const pen = document.createElement("canvas").getContext("2d");
		const style = getComputedStyle(input);
		pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
		const before = pen.measureText(input.value.slice(0, input.value.length - lastWord().length)).width;
		box.style[style.direction === "rtl" ? "right" : "left"] = `${Math.max(0, Math.min(before - 14, input.clientWidth - 240))}px`;
	};

	const show = (prefix, list) => {
		words = list.filter((s) => s.text.toLowerCase() !== prefix.toLowerCase());
		if (!words.length) return close();
		box.replaceChildren(...words.map((s, i) => {
			const known = s.text.toLowerCase().startsWith(prefix.toLowerCase()) ? prefix.length : 0;
			return el("li", { role: "option", id: `suggestion-${i}`, "aria-selected": false, onpointerdown: (e) => { e.preventDefault(); accept(i); } },
				el("span", s.text.slice(0, known), el("b", s.text.slice(known))), el("small", { title: "documents" }, number(s.documents)));
		}));
		choose(-1);
		box.hidden = false;
		input.setAttribute("aria-expanded", true);
		place();
	};

	const ask = async () => {
		const prefix = lastWord();
		if (prefix.length < 2 || prefix.length > 60 || input.selectionStart !== input.value.length) return close();
		asked?.abort();
		asked = new AbortController();
		try {
			const { suggestions } = await api.suggest(indexName(), prefix, SIZE, asked.signal);
			if (prefix === lastWord() && document.activeElement === input) show(prefix, suggestions);
		} catch { close(); }  // suggestions are a help, not an answer: a failure shows with the search itself
	};

	input.addEventListener("input", () => {
		clearTimeout(timer);
		timer = setTimeout(ask, WAIT);
	});
	input.addEventListener("blur", close);
	input.addEventListener("keydown", (e) => {
		if (box.hidden || e.isComposing) return;
		if (e.key === "ArrowDown") choose(at + 1 >= words.length ? -1 : at + 1);
		else if (e.key === "ArrowUp") choose(at < 0 ? words.length - 1 : at - 1);
		else if (e.key === "Escape") close();
		else if (e.key === "Tab" && !e.shiftKey) accept(Math.max(at, 0));
		else if (e.key === "Enter" && at >= 0) accept(at);
		else return;
		e.preventDefault();
		e.stopImmediatePropagation();
	});
	return { close };
}

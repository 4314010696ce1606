// Help: the keys, what the query syntax and conditions look like, and a line about the syntax above the results.
import { $, button, el, fill, icon } from "./dom.js";
import { KEYS } from "./keyboard.js";
import { change } from "./state.js";

const SYNTAX = [
	["cats dogs", "one of the words; all of them is best"],
	["+cats", "the word must be there; cats AND dogs: both"],
	["-cats", "the word must not be there; also NOT cats"],
	['"big dogs"', "the words next to each other"],
	['"big dogs"~2', "with up to two words in between, or moved"],
	["title:dogs", "the word in this field; title:(big dogs)"],
	["lang:en", "the field has this value"],
	["retriev*", "words that begin so"],
	["dgos~1", "words that differ in one letter; ~2: in two"],
	["dogs^3", "counts three times as much"],
	["+(cats dogs) big", "a group counts as one word"],
	["\\+ \\: \\\"", "the sign itself"],
];
const CONDITIONS = [
	["year >= 1999", "numbers and dates are compared: = != < <= > >="],
	['lang = "en"', "texts stand in quotation marks"],
	['lang in ["en", "de"]', "one of several values"],
	["exists(author)", "there is a value"],
	['year < 1950 and not (lang = "en")', "and, or, not and brackets"],
];

const forms = (rows) => el("dl.forms", rows.map(([form, text]) => el("div", el("dt.mono", form), el("dd", text))));
const SECTIONS = {
	Keyboard: () => el("dl.keys", KEYS.map(([keys, text]) => el("div", el("dt", keys.split(" ").map((k) => el("kbd", k))), el("dd", text)))),
	"Query syntax": () => [el("p", "While the button Query syntax is pressed, a query is read as Lucene reads it:"), forms(SYNTAX)],
	Conditions: () => [el("p", "Among the filters, a condition chooses documents by their other fields:"), forms(CONDITIONS)],
};

/** Opens the help with one of its sections first. */
export function showHelp(first) {
	const dialog = $("guide");
	const names = [first, ...Object.keys(SECTIONS).filter((name) => name !== first)];
	fill(dialog, names.map((name, i) => el("section",
		el("div.panel-head", el("h2", { id: i ? null : "guide-title" }, name), i === 0 && button(".icon", () => dialog.close(), { "aria-label": "Close" }, icon("close"))),
		SECTIONS[name]())));
	dialog.onclick = (e) => e.target === dialog && dialog.close();
	dialog.showModal();
	dialog.scrollTop = 0;
}

const LOOKS_LIKE_SYNTAX = /(^|\s)[+-]\p{L}|"[^"]+"|\p{L}\*(\s|$)|\s(AND|OR|NOT)\s|\p{L}~\d/u;

/** Reminds of the signs while they count, and says so if a query has signs that do not count. */
export function drawSyntaxLine({ q, syntax }, info) {
	const field = info.fields?.[0] ?? "title";
	const signs = ["+must", "-not", '"next to each other"', `${field}:word`, "begin*", "nearly~1"];
	if (syntax) fill($("signs"), signs.map((sign) => el("code.mono", sign)), button(".quiet", () => showHelp("Query syntax"), "All signs"));
	else if (info.words && LOOKS_LIKE_SYNTAX.test(q)) fill($("signs"), "The signs are ignored: this is a search for plain words.", button(".quiet", () => change({ syntax: "lucene", page: 1, doc: "" }), "Use the query syntax"));
	else fill($("signs"));
}

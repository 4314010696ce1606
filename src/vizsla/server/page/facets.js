// Filters: facet values with counts, a free condition, and chips of what is active.
import { $, button, cut, el, fill, icon, meter, number } from "./dom.js";
import { change, get } from "./state.js";

const BUCKETS = 12;  // ranges or dates of a field that are shown at first
/** A field as its documents have it: filters and facets write odd names in backquotes. */
export const bare = (field) => field.replace(/^`(.*)`/, "$1");
const named = (field) => cut(bare(field).replace(/\((year|month|day)\)$/, " by $1"), 40);

/** Chooses a value of a field, or takes the choice back; `filter` selects a bucket of values. */
export function toggleFilter(field, value, on, filter) {
	const rest = get().filters.filter((f) => f.field !== field || f.value !== value);
	change({ filters: on ? [...rest, { field, value, filter }] : rest, page: 1, doc: "" });
}

export const clearFilters = () => change({ filters: [], where: "", page: 1 });

export function toggleRail() {
	if (document.body.classList.toggle("rail-open")) $("rail").querySelector("button").focus();
	else $("filters")?.focus();
}

addEventListener("pointerdown", (e) => {
	if (!e.target.closest("#rail, #filters")) document.body.classList.remove("rail-open");
});

/** The rail: drawn once for an index; counts are filled in when they come. */
export function drawRail(info) {
	const plain = info.facets?.find((field) => !field.endsWith(")")) ?? "field";
	const input = el("input.mono", { type: "text", id: "where", spellcheck: "false", autocapitalize: "off", autocomplete: "off", placeholder: `${plain} = …`, "aria-describedby": "where-error" });
	const form = el("form.where", el("label", { for: "where" }, "Condition"), input, el("p.wrong", { id: "where-error", role: "alert", hidden: true }));
	const use = (e) => { e.preventDefault(); change({ where: input.value.trim(), page: 1 }); };
	form.addEventListener("submit", use);
	input.addEventListener("change", use);
	fill($("rail"), el("div.rail-head", el("h2", "Filters"), button(".icon.rail-close", toggleRail, { "aria-label": "Close the filters" }, icon("close"))), form, el("div", { id: "facets" }));
}

export function showWhere(text, error) {
	const input = $("where");
	if (document.activeElement !== input) input.value = text;
	$("where-error").textContent = error ?? "";
	$("where-error").hidden = !error;
	input.setAttribute("aria-invalid", Boolean(error));
}

/** `counts`: facets by field; `over`: what they were counted over; `more` asks for all values of a field. */
export function drawFacets(counts = {}, over = null, more = null) {
	const { filters } = get();
	const useful = Object.entries(counts).filter(([field, f]) => f.distinct > 1 || (f.distinct && f.missing) || filters.some((x) => x.field === field));
	fill($("facets"), useful.length > 0 && !over.exact && el("p.quiet-text", `Counts of the top ${number(over.top ?? over.documents)} results`),
		useful.map(([field, f]) => {
			const isOn = ({ value }) => filters.some((x) => x.field === field && x.value === value);
			const rows = f.values.filter((v) => !v.filter || v.count || isOn(v));  // of dates there may be many without documents
			const shown = f.all ? rows : rows.filter((v, i) => !v.filter || i >= rows.length - BUCKETS || isOn(v));
			const hidden = f.values[0]?.filter ? rows.length - shown.length : f.distinct - f.values.length;
			const most = Math.max(...shown.map((v) => v.count), 1);
			return el("fieldset.facet", el("legend", named(field)),
				el("ul", shown.map((v) => facetRow(field, v, most, isOn(v)))),
				hidden > 0 && !f.all && button(".quiet", () => more(field), `${number(hidden)} more`));
		}));
}

function facetRow(field, { value, count, filter }, most, on) {
	return el("li", button(".facet-value", () => toggleFilter(field, value, !on, filter), { "aria-pressed": on, title: cut(value, 200) },
		el("span.box"), el("bdi", value === "" ? "(empty)" : cut(value, 60)), el("small", number(count)), meter(count / most)));
}

/** The chips above the results. */
export function drawActive({ filters, where, like }) {
	const chip = (label, remove) => el("span.active-chip", el("bdi", label), button("", remove, { "aria-label": `Remove ${label}` }, icon("close")));
	const chips = filters.map(({ field, value }) => chip(`${named(field)}: ${cut(value, 60)}`, () => toggleFilter(field, value, false)));
	if (where) chips.push(chip(cut(where, 120), () => change({ where: "", page: 1 })));
	$("filter-count").textContent = chips.length || "";
	if (chips.length > 1) chips.push(button(".quiet", clearFilters, "Clear filters"));
	if (like) chips.unshift(chip(`similar to ${cut(like, 60)}`, () => change({ like: "", page: 1 })));
	fill($("active"), chips);
}

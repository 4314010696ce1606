// Filters: facet values with counts, a free condition, and chips of what is active.
import { $, cut, el, fill, icon, number } from "./dom.js";
import { addFilter } from "./results.js";
import { change, get } from "./state.js";

const active = (field, value) => get().filters.some((f) => f.field === field && f.value === value);

export function removeFilter(field, value) {
  change({ filters: get().filters.filter((f) => !(f.field === field && f.value === value)), page: 1 });
}

export const clearFilters = () => change({ filters: [], where: "", page: 1 });

/** The rail: drawn once for an index; counts are filled in when they come. */
export function drawRail(info) {
  const { where } = get();
  const input = el("input", {
    type: "text", id: "where", class: "mono", spellcheck: "false", autocapitalize: "off", value: where, autocomplete: "off",
    placeholder: example(info), "aria-describedby": "where-error",
  });
  const form = el("form.where", {}, el("label", { for: "where" }, "Condition"), input, el("p.wrong", { id: "where-error", role: "alert", hidden: true }));
  form.addEventListener("submit", (e) => { e.preventDefault(); change({ where: input.value.trim(), page: 1 }); });
  input.addEventListener("change", () => change({ where: input.value.trim(), page: 1 }));
  fill($("rail"), el("div.rail-head", {}, el("h2", {}, "Filters"),
    el("button.icon.rail-close", { type: "button", "aria-label": "Close the filters", onclick: () => toggleRail(false) }, icon("close"))),
    el("div", { id: "facets" }), form);
}

const example = (info) => (info.facets?.length ? `${info.facets[0]} = …` : 'year >= 1999 and lang = "en"');

export function toggleRail(open = !document.body.classList.contains("rail-open")) {
  document.body.classList.toggle("rail-open", open);
}

export function showWhere(text, error) {
  const input = $("where");
  if (!input) return;
  if (document.activeElement !== input) input.value = text;
  $("where-error").textContent = error ?? "";
  $("where-error").hidden = !error;
  input.setAttribute("aria-invalid", String(Boolean(error)));
}

/** `counts`: facets by field; `over`: what they were counted over. */
export function drawFacets(counts, over) {
  const fields = Object.entries(counts).filter(([, f]) => f.values.length);
  const most = (f) => Math.max(...f.values.map((v) => v.count));
  fill($("facets"),
    fields.length && over && !over.exact ? el("p.quiet-text", {}, `Counts of the top ${number(over.top ?? over.documents)} results`) : null,
    fields.map(([field, f]) => el("fieldset.facet", {}, el("legend", {}, cut(field, 40)),
      el("ul", {}, f.values.map(({ value, count }) => facetRow(field, value, count, most(f)))),
      f.distinct > f.values.length ? el("p.quiet-text", {}, `and ${number(f.distinct - f.values.length)} more`) : null)));
}

function facetRow(field, value, count, most) {
  const on = active(field, value);
  const fillNode = el("i");
  fillNode.style.width = `${(100 * count) / most}%`;
  return el("li", {}, el("button.facet-value", {
    type: "button", "aria-pressed": String(on), title: cut(value, 200),
    onclick: () => (on ? removeFilter(field, value) : addFilter(field, value)),
  }, el("span.box", { "aria-hidden": "true" }), el("bdi", {}, value === "" ? "(empty)" : cut(value, 60)), el("small", {}, number(count)), el("span.meter", { "aria-hidden": "true" }, fillNode)));
}

/** The chips above the results. */
export function drawActive(state) {
  const chip = (label, remove) => el("span.active-chip", {}, el("span", {}, label),
    el("button", { type: "button", "aria-label": `Remove ${label}`, onclick: remove }, icon("close")));
  const chips = state.filters.map(({ field, value }) => chip(`${cut(field, 40)}: ${cut(value, 60)}`, () => removeFilter(field, value)));
  if (state.where) chips.push(chip(cut(state.where, 120), () => change({ where: "", page: 1 })));
  if (state.like) chips.unshift(chip(`similar to ${cut(state.like, 60)}`, () => change({ like: "", page: 1 })));
  if (chips.length > 1) chips.push(el("button.quiet", { type: "button", onclick: clearFilters }, "Clear filters"));
  fill($("active"), chips);
  const count = state.filters.length + (state.where ? 1 : 0);
  const badge = $("filter-count");
  if (badge) badge.textContent = count || "";
}

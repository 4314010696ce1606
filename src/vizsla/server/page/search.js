// Runs the searches of a state: drops answers that come late, says when it is slow, tries again when the server is away.
import { api } from "./api.js";
import { DEPTH, compareNodes } from "./compare.js";
import { $, el, fill, icon, number, plural } from "./dom.js";
import { drawFacets, showWhere } from "./facets.js";
import { loadGrades } from "./judging.js";
import { listNode, textFields } from "./results.js";
import { PAGE_SIZE, change, filterOf, linkTo, sideOf } from "./state.js";
import { clearNotice, noResults, showError, showUnknownWords } from "./states.js";

const SLOW = 300;
const AFTER = 120;
let running = null;
let retryTimer = null;
let failures = 0;
let tab = "a";

export function stop() {
  running?.abort();
  clearTimeout(retryTimer);
  waiting(false);
}

function waiting(on) {
  document.body.classList.toggle("slow", on);
  $("results").setAttribute("aria-busy", String(on));
}

export async function run(state, info, server) {
  stop();
  const { signal } = (running = new AbortController());
  const slow = setTimeout(() => waiting(true), SLOW);
  try {
    await (state.b ? runCompare : runOne)(state, info, server, signal);
    if (signal.aborted) return;
    failures = 0;
    clearNotice();
    showWhere(state.where, "");
    document.body.classList.remove("stale");
  } catch (e) {
    if (signal.aborted || e.name === "AbortError") return;
    failed(e, state, info, server);
  } finally {
    clearTimeout(slow);
    if (!signal.aborted) waiting(false);
  }
}

function failed(e, state, info, server) {
  if (e.status === undefined) throw e;  // a mistake of the page itself
  const again = () => run(state, info, server);
  const later = e.offline ? Math.min(8000, 500 * 2 ** failures++) : e.wait && e.wait <= 5 ? 1000 * e.wait : null;
  if (later) retryTimer = setTimeout(again, later);
  document.body.classList.add("stale");
  showError(e, again, later);
  if (e.status === 400 && state.where && /filter|field|condition|document has/i.test(e.message)) showWhere(state.where, e.message);
}

/** What both sides of a search share. */
function common(state) {
  return { ...(state.like ? { like: state.like } : { query: state.q }), filter: filterOf(state) };
}

const highlight = (info) => ({ fields: ["title", ...textFields(info)].filter((f) => f !== "title" || info.fields?.includes("title")), width: 260 });
const context = (side, key, state, info, server) => ({ info, side: key, size: PAGE_SIZE, judging: server.judging && Boolean(state.q), request: { ...common(state), ...sideOf(side) } });

async function runOne(state, info, server, signal) {
  const offset = (state.page - 1) * PAGE_SIZE;
  const body = { ...common(state), ...sideOf(state.a), k: PAGE_SIZE + 1, offset, highlight: highlight(info) };
  const answer = await api.search(info.name, body, signal);
  if (signal.aborted) return;
  const page = answer.results[0];
  const more = page.hits.length > PAGE_SIZE;
  const shown = page.hits.slice(0, PAGE_SIZE).length;
  fill($("results"), shown ? listNode(page, context(state.a, "a", state, info, server)) : noResults(state, info, signal));
  showCount(state, shown, more ? null : offset + shown, answer.took_ms);
  drawPager(state, more);
  after(state, info, server, signal, shown, more ? null : offset + shown, answer.took_ms);
}

async function runCompare(state, info, server, signal) {
  const offset = (state.page - 1) * PAGE_SIZE;
  const ask = async (key) => {
    const body = { ...common(state), ...sideOf(state[key]) };
    const [full, ranking] = await Promise.all([
      api.search(info.name, { ...body, k: PAGE_SIZE, offset, highlight: highlight(info) }, signal),
      api.search(info.name, { ...body, k: DEPTH, fields: [] }, signal),
    ]);
    return { page: full.results[0], ranking: ranking.results[0], took: full.took_ms, ctx: context(state[key], key, state, info, server) };
  };
  const [a, b] = await Promise.all([ask("a"), ask("b")]);
  if (signal.aborted) return;
  fill($("results"), compareNodes({ a, b }, info, tab, (key) => { tab = key; }));
  const shown = Math.max(a.page.hits.length, b.page.hits.length);
  showCount(state, shown, null, a.took + b.took);
  drawPager(state, shown === PAGE_SIZE);
  after(state, info, server, signal, shown, null, a.took + b.took);
}

/** The smaller things, once the results are there: counts of facets, grades, words that are nowhere. */
function after(state, info, server, signal, shown, total, took) {
  setTimeout(() => {
    if (signal.aborted) return;
    countFacets(state, info, signal, total, shown, took);
    if (server.judging && state.q) loadGrades(info.name, state.q).catch(() => {});
    if (state.q && shown) showUnknownWords($("unknown"), info, state.q, signal);
  }, AFTER);
}

async function countFacets(state, info, signal, total, shown, took) {
  const fields = info.facets ?? [];
  const count = (names, filter) => api.search(info.name, { ...common(state), ...sideOf({ model: state.a.model }), filter, k: 0, facets: { fields: names, over: "all", size: 8 } }, signal);
  const chosen = [...new Set(state.filters.map((f) => f.field))].filter((f) => fields.includes(f));
  try {
    // The values of a field that is filtered are counted without that filter: they are its alternatives.
    const [all, ...own] = await Promise.all([count(fields, filterOf(state)), ...chosen.map((f) => count([f], filterOf(state, f)))]);
    if (signal.aborted) return;
    const { facets = {}, facets_over: over } = all.results[0];
    chosen.forEach((field, i) => { facets[field] = withChosen(own[i].results[0].facets[field], field, state); });
    drawFacets(Object.fromEntries(fields.filter((f) => facets[f]).map((f) => [f, facets[f]])), over);
    if (over?.exact && total === null) showCount(state, shown, over.documents, took);
  } catch (e) {
    if (!signal.aborted && e.status !== undefined) drawFacets({}, null);
  }
}

/** A value that is chosen is listed even if it is not among the most frequent. */
function withChosen(facet, field, state) {
  const values = [...facet.values];
  for (const f of state.filters) {
    if (f.field === field && !values.some((v) => v.value === f.value)) values.push({ value: f.value, count: 0 });
  }
  return { ...facet, values };
}

function showCount(state, shown, total, took) {
  const first = (state.page - 1) * PAGE_SIZE + 1;
  const range = shown ? `${number(first)}–${number(first + shown - 1)}` : "";
  const text = !shown ? "No results" : total !== null ? (total > shown ? `${range} of ${plural(total, "result")}` : plural(total, "result")) : `Results ${range}`;
  fill($("count"), el("b", {}, text), el("span.took", {}, ` in ${took < 10 ? number(took, 1) : number(took)} ms`), el("span", { id: "unknown" }));
}

function drawPager(state, more) {
  const step = (id, to, label, shape, text) => el("a.button", {
    id, href: linkTo({ page: to, doc: "" }), "aria-label": label,
    onclick: (e) => { e.preventDefault(); change({ page: to, doc: "" }); scrollTo({ top: 0 }); $("results").focus({ preventScroll: true }); },
  }, shape === "back" ? icon(shape) : null, text, shape === "next" ? icon(shape) : null);
  fill($("pager"), state.page > 1 ? step("page-back", state.page - 1, "Page back", "back", "Back") : el("span"),
    state.page > 1 || more ? el("span.quiet-text", {}, `Page ${number(state.page)}`) : null,
    more ? step("page-next", state.page + 1, "Page on", "next", "More") : el("span"));
}

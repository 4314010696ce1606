// What is searched, kept in the address: a link restores everything, and back and forward work.

export const PAGE_SIZE = 10;
const SIDE = ["model", "expand", "rerank", "combine"];

/** @typedef {{index: string, q: string, like: string, filters: {field: string, value: *}[], where: string, page: number,
 *   a: object, b: object|null, doc: string, drawer: boolean}} State */

export function emptySide() {
  return { model: "", expand: "", rerank: "", combine: "" };
}

export function fromAddress(text = location.search) {
  const params = new URLSearchParams(text);
  const side = (prefix) => Object.fromEntries(SIDE.map((name) => [name, params.get(prefix + name) ?? ""]));
  const page = Number.parseInt(params.get("page") ?? "1", 10);
  return {
    index: params.get("index") ?? "",
    q: params.get("q") ?? "",
    like: params.get("like") ?? "",
    filters: params.getAll("f").map(readFilter).filter(Boolean),
    where: params.get("where") ?? "",
    page: page > 1 ? page : 1,
    a: side(""),
    b: params.has("compare") ? side("b.") : null,
    doc: params.get("doc") ?? "",
    drawer: params.has("judgements"),
  };
}

export function toAddress(state) {
  const params = new URLSearchParams();
  const put = (name, value) => value && params.set(name, value);
  put("index", state.index);
  put("q", state.q);
  put("like", state.like);
  for (const { field, value } of state.filters) params.append("f", `${encodeURIComponent(field)}=${JSON.stringify(value)}`);
  put("where", state.where);
  put("page", state.page > 1 ? String(state.page) : "");
  for (const name of SIDE) put(name, state.a[name]);
  if (state.b) {
    params.set("compare", "1");
    for (const name of SIDE) put(`b.${name}`, state.b[name]);
  }
  put("doc", state.doc);
  put("judgements", state.drawer ? "1" : "");
  const text = params.toString();
  return text ? `?${text}` : location.pathname;
}

function readFilter(text) {
  const at = text.indexOf("=");
  try {
    const value = JSON.parse(text.slice(at + 1));
    return at > 0 && (value === null || typeof value !== "object") ? { field: decodeURIComponent(text.slice(0, at)), value } : null;
  } catch {
    return null;
  }
}

let state = fromAddress();
const listeners = [];

export const get = () => state;
export const onChange = (listener) => listeners.push(listener);

/** Changes the state. `push` makes a step for the back button; without it the current step is rewritten. */
export function change(patch, { push = true } = {}) {
  const before = state;
  state = { ...state, ...patch };
  const url = toAddress(state);
  if (url !== toAddress(before) || !push) history[push ? "pushState" : "replaceState"](null, "", url);
  for (const listener of listeners) listener(state, before);
}

addEventListener("popstate", () => {
  const before = state;
  state = fromAddress();
  if (!state.index) state.index = before.index;
  for (const listener of listeners) listener(state, before);
});

/** The state with other values, as a link. */
export const linkTo = (patch) => toAddress({ ...state, ...patch });

const PLAIN = /^[\p{L}_][\p{L}\p{N}_-]*(\.[\p{L}\p{N}_-]+)*$/u;
const WORDS = new Set(["and", "or", "not", "in", "exists", "true", "false", "null"]);

function condition(field, values) {
  const name = PLAIN.test(field) && !WORDS.has(field.toLowerCase()) ? field : `\`${field}\``;
  const literal = (v) => typeof v === "string" ? `"${v.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"` : String(v);
  return values.length === 1 ? `${name} = ${literal(values[0])}` : `${name} in [${values.map(literal).join(", ")}]`;
}

/** The filter of a search: values of one field are alternatives, fields must all hold. `without` leaves a field out. */
export function filterOf({ filters, where }, without = null) {
  const byField = new Map();
  for (const { field, value } of filters) {
    if (field !== without) byField.set(field, [...(byField.get(field) ?? []), value]);
  }
  const parts = [...byField].map(([field, values]) => condition(field, values));
  if (where.trim()) parts.push(parts.length ? `(${where.trim()})` : where.trim());
  return parts.join(" and ") || undefined;
}

/** The part of a request that says how one side searches. */
export function sideOf(side) {
  return Object.fromEntries(SIDE.filter((name) => side[name]).map((name) => [name, side[name]]));
}

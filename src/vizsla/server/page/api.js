// Talking with the server: one place for the key, errors and cancelling.
import { $, el, fill } from "./dom.js";

export class ServerError extends Error {
  constructor(message, status, wait = null) {
    super(message);
    this.status = status;
    this.wait = wait;
  }
  get offline() { return this.status === 0; }
}

const BASE = new URL(".", document.baseURI);
const store = {
  get key() { try { return sessionStorage.getItem("vizsla-key"); } catch { return this.kept ?? null; } },
  set key(value) { this.kept = value; try { sessionStorage.setItem("vizsla-key", value); } catch { /* kept in memory */ } },
};

export const hasKey = () => Boolean(store.key);
export const address = (path) => new URL(path, BASE).href;
const at = (index, rest = "") => `v1/${encodeURIComponent(index)}${rest}`;

async function send(path, { method = "GET", body, signal, raw = false } = {}) {
  const headers = {};
  if (store.key) headers.Authorization = `Bearer ${store.key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(path), { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ServerError("Cannot reach the server.", 0);
  }
  if (answer.status === 401) {
    await askForKey(Boolean(headers.Authorization), headers.Authorization);
    return send(path, { method, body, signal, raw });
  }
  if (!answer.ok) throw await failure(answer);
  return raw ? answer.blob() : answer.json();
}

async function failure(answer) {
  let text = `The server answered ${answer.status}.`;
  try {
    const said = (await answer.json()).error;
    if (typeof said === "string" && said) text = said;
  } catch { /* not JSON: keep the number */ }
  return new ServerError(text, answer.status, Number(answer.headers.get("Retry-After")) || null);
}

let asking = null;
/** Shows the dialog for a key; all requests that wait for one share it. */
function askForKey(refused, old) {
  if (asking) return asking;
  if (store.key && old !== `Bearer ${store.key}`) return Promise.resolve();  // a newer key is there already
  const dialog = $("key");
  asking = new Promise((resolve) => {
    const input = el("input", { type: "password", id: "key-input", autocomplete: "off", required: true, "aria-label": "Key" });
    const form = el("form", { method: "dialog" },
      el("h2", { id: "key-title" }, "This server needs a key"),
      el("p", {}, refused ? "That key was not accepted. Try another." : "Ask the person who runs the server for one. It is kept until you close this tab."),
      el("div.row", {}, input, el("button.primary", { type: "submit" }, "Continue")));
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      store.key = input.value.trim();
      asking = null;
      dialog.close();
      resolve();
    });
    fill(dialog, form);
    dialog.oncancel = (e) => e.preventDefault();
    dialog.showModal();
  });
  return asking;
}

/** Saves what a route gives as a file, with the key if there is one. */
export async function download(index, rest, name) {
  const blob = await send(at(index, rest), { raw: true });
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}

export const api = {
  indexes: (signal) => send("v1/indexes", { signal }),
  search: (index, body, signal) => send(at(index, "/search"), { method: "POST", body, signal }),
  document: (index, id, signal) => send(at(index, `/doc/${id.split("/").map(encodeURIComponent).join("/")}`), { signal }),
  explain: (index, body, signal) => send(at(index, "/explain"), { method: "POST", body, signal }),
  terms: (index, text, signal) => send(at(index, `/terms?text=${encodeURIComponent(text)}`), { signal }),
  suggest: (index, prefix, size, signal) => send(at(index, `/suggest?prefix=${encodeURIComponent(prefix)}&size=${size}`), { signal }),
  judgements: (index, query) => send(at(index, "/judgements" + (query === undefined ? "" : `?query=${encodeURIComponent(query)}`))),
  judge: (index, query, id, grade) => send(at(index, "/judgements"), { method: "PUT", body: { query, id, grade } }),
  measures: (index, body) => send(at(index, "/judgements/measures"), { method: "POST", body }),
  judgementsPath: (index, kind) => address(at(index, `/judgements/${kind}`)),
};

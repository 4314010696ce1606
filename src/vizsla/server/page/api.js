// Talking with the server: one place for the key, for errors and for cancelling.
import { $, el, fill } from "./dom.js";

export class ServerError extends Error {
	constructor(message, status, wait) {
		super(message);
		this.status = status;
		this.wait = wait;  // seconds after which the server may be asked again
		this.offline = status === 0;
	}
}

const KEY = "vizsla-key";

async function send(path, { method = "GET", body, signal, raw = false } = {}) {
	const key = sessionStorage.getItem(KEY);
	const headers = {};
	if (key) headers.Authorization = `Bearer ${key}`;
	if (body) headers["Content-Type"] = "application/json";
	let answer;
	try {
		answer = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
	} catch (e) {
		throw e.name === "AbortError" ? e : new ServerError("Cannot reach the server.", 0);
	}
	if (answer.status === 401) {
		const isChange = method === "PUT";  // a change can be given up; without a key to read there is no page
		if (key === sessionStorage.getItem(KEY) && !(await askForKey(key, isChange))) throw new ServerError("Nothing was changed: this needs a key.", 401);
		return send(path, { method, body, signal, raw });
	}
	if (answer.ok) return raw ? answer.blob() : answer.json();
	const said = await answer.json().then((j) => j.error, () => null);
	throw new ServerError(said || `The server answered ${answer.status}.`, answer.status, Number(answer.headers.get("Retry-After")));
}

let asking = null;
/** Shows the dialog for a key; all requests that wait for one share it. False if it was closed without one. */
function askForKey(refused, optional) {
	asking ??= new Promise((resolve) => {
		const dialog = $("key");
		const input = el("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Key" });
		const form = el("form", el("h2", { id: "key-title" }, optional ? "Judging needs a key" : "This server needs a key"),
			el("p", refused ? "That key was not accepted. Try another." : "Ask the person who runs the server for one. It is kept until you close this tab."),
			el("div.row", input, el("button.button.primary", "Continue")));
		form.addEventListener("submit", (e) => {
			e.preventDefault();
			sessionStorage.setItem(KEY, input.value.trim());
			asking = null;
			dialog.close();
			resolve(true);
		});
		dialog.oncancel = (e) => {
			if (!optional) return e.preventDefault();
			asking = null;
			resolve(false);
		};
		fill(dialog, form);
		dialog.showModal();
	});
	return asking;
}

/** Saves what a route answers as a file. */
export async function download(index, rest, name) {
	const link = el("a", { href: URL.createObjectURL(await send(at(index, rest), { raw: true })), download: name });
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}

const text = encodeURIComponent;
const at = (index, rest) => `v1/${text(index)}/${rest}`;
const post = (rest) => (index, body, signal) => send(at(index, rest), { method: "POST", body, signal });

export const api = {
	indexes: () => send("v1/indexes"),
	search: post("search"),
	explain: post("explain"),
	measures: post("judgements/measures"),
	document: (index, id) => send(at(index, `doc/${id.split("/").map(text).join("/")}`)),
	terms: (index, query, signal) => send(at(index, `terms?text=${text(query)}`), { signal }),
	suggest: (index, prefix, size, signal) => send(at(index, `suggest?prefix=${text(prefix)}&size=${size}`), { signal }),
	judgements: (index, query) => send(at(index, query === undefined ? "judgements" : `judgements?query=${text(query)}`)),
	judge: (index, query, id, grade) => send(at(index, "judgements"), { method: "PUT", body: { query, id, grade } }),
};

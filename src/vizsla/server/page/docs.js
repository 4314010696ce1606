// The page of the API, drawn from the server's own OpenAPI description.
import { $, el, fill } from "./dom.js";

let schemas = {};
const resolve = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").at(-1)] ?? {} : schema ?? {});

/** The type of a value in a few words. */
function typeOf(schema) {
	const s = resolve(schema);
	const some = s.anyOf ?? s.oneOf ?? s.allOf;
	if (some) return [...new Set(some.map(typeOf))].filter((t) => t !== "null").join(" or ");
	if (s.enum || "const" in s) return (s.enum ?? [s.const]).map((v) => JSON.stringify(v)).join(" or ");
	if (s.type === "array") return `list of ${typeOf(s.items)}`;
	return { string: "text", integer: "whole number", boolean: "true or false" }[s.type] ?? s.type ?? "any";
}

/** `backquotes` become code. */
const prose = (text = "") => text.split("`").map((part, i) => (i % 2 ? el("code.mono", part) : part));

function rows(items) {
	return el("dl.facts", items.map(([name, schema, required, note]) => el("div", el("dt.mono", name, required && el("b", { title: "required" }, " *")),
		el("dd", el("small", typeOf(schema), schema.default != null && `, default ${JSON.stringify(schema.default)}`), el("div", prose(note ?? schema.description)), nested(schema)))));
}

/** The fields of an object inside of a body, one level down. */
function nested(schema) {
	const object = (schema.anyOf ?? [schema]).map(resolve).find((s) => s.properties);
	return object && el("details", el("summary", object.title ?? "fields"), fields(object));
}

const fields = (s) => rows(Object.entries(s.properties).map(([name, p]) => [name, p, s.required?.includes(name)]));

function example(path, method, route, body) {
	const values = { index: "NAME", docid: "ID" };
	const query = (route.parameters ?? []).filter((p) => p.in === "query" && p.required).map((p) => `${p.name}=…`).join("&");
	const url = new URL(path.slice(1).replace(/{(\w+)(:\w+)?}/g, (_, name) => values[name] ?? name.toUpperCase()) + (query && `?${query}`), document.baseURI).href;
	const known = ["query", "id", "grade"].filter((name) => name in (body?.properties ?? {})).map((name) => [name, { query: "pointing dogs", id: "ID", grade: 1 }[name]]);
	const data = body?.properties && ` \\\n  -H 'Content-Type: application/json' -d '${JSON.stringify(Object.fromEntries(known))}'`;
	return el("pre.mono", `curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}'${url}'`, data);
}

function routeNode(path, method, route) {
	const body = resolve(route.requestBody?.content?.["application/json"]?.schema);
	return el("article.route", { id: `${method}${path}` },
		el("h3", el("span.tag", method.toUpperCase()), " ", el("span.mono", path)),
		el("p", prose(route.description ?? route.summary)),
		route.parameters?.length > 0 && rows(route.parameters.map((p) => [p.name, p.schema, p.required, p.description])),
		body.properties && [el("h4", "Body"), fields(body)],
		example(path, method, route, body));
}

const answer = await fetch("openapi.json");
if (!answer.ok) fill($("main"), el("p.wrong", `The description of the API cannot be read: the server answered ${answer.status}.`));
else {
	const api = await answer.json();
	schemas = api.components?.schemas ?? {};
	const groups = Object.groupBy(Object.entries(api.paths).flatMap(([path, all]) => Object.entries(all).map(([method, route]) => ({ path, method, route }))), ({ route }) => route.tags?.[0] ?? "Routes");
	$("about").textContent = `API ${api.info.version}`;
	fill($("main"), el("div.empty", el("h2", "The API"), el("p", prose(api.info.description)), el("p", el("a", { href: "openapi.json" }, "openapi.json"))),
		Object.entries(groups).map(([name, all]) => el("section", el("h2", name), all.map(({ path, method, route }) => routeNode(path, method, route)))));
	fill($("routes"), Object.entries(groups).map(([name, all]) => el("fieldset.facet", el("legend", name),
		all.map(({ path, method }) => el("a.facet-value", { href: `#${method}${path}` }, el("small", method), el("span.mono", path.replace("/v1/{index}", "…")))))));
	document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

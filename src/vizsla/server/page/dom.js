// Making elements. Texts only ever become text nodes, so nothing a document holds can run.

export const $ = (id) => document.getElementById(id);

/** el("p.note", {title: "x", onclick: f}, "text", child): null and false children are left out. */
export function el(kind, props = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const node = document.createElement(tag || "div");
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((c) => c != null && c !== false));
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(9).filter((c) => c != null && c !== false));
  return node;
}

const SHAPES = {
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM20.500 20.500 16 16",
  close: "M6 6l12 12M18 6 6 18",
  up: "M7 11v9M7 11l4-7.500c1.600 0 2.500 1 2.500 2.500V10h5a2 2 0 0 1 2 2.300l-1 6a2 2 0 0 1-2 1.700H7M7 11H4v9h3",
  down: "M7 13V4M7 13l4 7.500c1.600 0 2.500-1 2.500-2.500V14h5a2 2 0 0 0 2-2.300l-1-6A2 2 0 0 0 17.500 4H7M7 13H4V4h3",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.700-5.700L12 7M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.700 5.700L12 17",
  theme: "M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500z",
  help: "M9 9a3 3 0 1 1 4.500 2.600c-1 .6-1.500 1.200-1.500 2.400M12 17.500v.1M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  judge: "M4 6.500l1.500 1.500L8 5M4 12.500 5.500 14 8 11M4 18.500 5.500 20 8 17M12 6.500h8M12 12.500h8M12 18.500h8",
  compare: "M4 5h6v14H4zM14 5h6v14h-6z",
  why: "M4 20V10M10 20V4M16 20v-7M22 20H2",
  filter: "M4 6h16M7 12h10M10 18h4",
  next: "M9 5l7 7-7 7",
  back: "M15 5l-7 7 7 7",
  chevron: "M6 9l6 6 6-6",
  similar: "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM15 10a5 5 0 1 1 0 10 5 5 0 0 1 0-10z",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", SHAPES[name]);
  svg.append(path);
  return svg;
}

/** A text cut for display at a number of code points. */
export function cut(text, length) {
  text = String(text);
  if (text.length <= length) return text;
  return Array.from(text.slice(0, 2 * length)).slice(0, length).join("") + "…";
}

/** A text with places marked; places count code points, as the server's do. */
export function marked(text, matches) {
  if (!matches?.length) return [text];
  const points = Array.from(text);
  const out = [];
  let at = 0;
  for (const [start, end] of matches) {
    if (start < at || end > points.length) continue;
    if (start > at) out.push(points.slice(at, start).join(""));
    out.push(el("mark", {}, points.slice(start, end).join("")));
    at = end;
  }
  out.push(points.slice(at).join(""));
  return out;
}

export const number = (n, digits = 0) =>
  Number(n).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** A score with as many digits as say something. */
export function score(n) {
  const size = Math.abs(n);
  return number(n, size >= 100 ? 1 : size >= 1 || size === 0 ? 2 : 4);
}

export const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;

let timer;
export function toast(text) {
  const node = $("toast");
  node.textContent = text;
  node.classList.add("shown");
  clearTimeout(timer);
  timer = setTimeout(() => node.classList.remove("shown"), 2600);
}

/** The parts of a page that motion may touch scroll smoothly only if the reader likes motion. */
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

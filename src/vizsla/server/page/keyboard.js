// Shortcuts. They rest while a field is being typed in.
import { $, calm, el, fill, icon } from "./dom.js";
import { judge } from "./judging.js";
import { closePanel, panelKind } from "./panel.js";

const LIST = [
  ["/", "search"], ["j  ↓", "next result"], ["k  ↑", "result before"], ["h  l", "other column"], ["Enter", "open the document"],
  ["e", "why this result"], ["1  2  3", "judge relevant"], ["0", "judge not relevant"], ["x", "take the judgement back"],
  ["[  ]", "page back, page on"], ["f", "filters"], ["c", "compare two models"], ["m", "judgements and measures"],
  ["t", "dark or light"], ["Esc", "close"], ["?", "this list"],
];

const visible = (node) => node.offsetParent !== null;
const hits = (side) => [...document.querySelectorAll("#results .hit")].filter((n) => visible(n) && (!side || n.dataset.side === side));
const current = () => document.activeElement?.closest?.(".hit") ?? document.querySelector(".hit.current");

export function focusHit(node) {
  if (!node) return;
  document.querySelector(".hit.current")?.classList.remove("current");
  node.classList.add("current");
  node.querySelector(".title").focus({ preventScroll: true });
  node.scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" });
}

function move(step) {
  const now = current();
  const all = hits(now?.dataset.side ?? hits()[0]?.dataset.side);
  const at = now ? all.indexOf(now) : -1;
  focusHit(all[Math.max(0, Math.min(all.length - 1, at + step))]);
}

function across(side) {
  const now = current();
  if (!now) return;
  const others = hits(side);
  focusHit(others.find((n) => n.dataset.id === now.dataset.id) ?? others[hits(now.dataset.side).indexOf(now)]);
}

export function showShortcuts() {
  const dialog = $("shortcuts");
  fill(dialog, el("div.dialog-head", {}, el("h2", { id: "shortcuts-title" }, "Keyboard"),
    el("button.icon", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, icon("close"))),
    el("dl.keys", {}, LIST.map(([keys, text]) => el("div", {}, el("dt", {}, keys.split("  ").map((k) => el("kbd", {}, k))), el("dd", {}, text)))));
  dialog.onclick = (e) => { if (e.target === dialog) dialog.close(); };
  dialog.showModal();
}

function judgeCurrent(grade) {
  const id = panelKind() === "document" ? document.querySelector(".panel [data-judge]")?.dataset.judge : current()?.querySelector("[data-judge]")?.dataset.judge;
  if (id !== undefined) judge(id, grade);
}

const press = (id) => $(id)?.offsetParent && $(id).click();
const KEYS = {
  "/": () => { $("query").focus(); $("query").select(); },
  j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
  h: () => across("a"), l: () => across("b"),
  e: () => current()?.querySelector(".why")?.click(),
  x: () => judgeCurrent(null), 0: () => judgeCurrent(0), 1: () => judgeCurrent(1), 2: () => judgeCurrent(2), 3: () => judgeCurrent(3),
  "[": () => press("page-back"), "]": () => press("page-next"),
  c: () => press("compare"), f: () => press("filters"), m: () => press("judging"), t: () => press("theme"), "?": showShortcuts,
};

export function setUpKeyboard() {
  document.addEventListener("keydown", (e) => {
    if (e.defaultPrevented || e.isComposing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
    if (e.key === "Escape") {
      if (document.querySelector(":popover-open")) return;
      if (document.body.classList.contains("rail-open")) document.body.classList.remove("rail-open");
      else if (!closePanel() && typing) e.target.blur();
      return;
    }
    if (typing) {
      if (e.target.id === "query" && e.key === "ArrowDown" && hits().length) { e.preventDefault(); focusHit(hits()[0]); }
      return;
    }
    if (document.querySelector(":popover-open") || (e.target.closest?.(".panel") && /^Arrow/.test(e.key))) return;
    const action = KEYS[e.key];
    if (!action) return;
    e.preventDefault();
    action();
  });
  document.addEventListener("focusin", (e) => {
    const hit = e.target.closest?.(".hit");
    if (!hit) return;
    document.querySelector(".hit.current")?.classList.remove("current");
    hit.classList.add("current");
  });
}

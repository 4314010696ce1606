// The panel at the right: one document, or the judgements. It never blocks the page behind it.
// Of the kind "beside" it follows the results by itself, and leaves the focus and the address alone.
import { $, button, el, fill, icon } from "./dom.js";

let close = null;
let before = null;

export const panelKind = () => ($("panel").hidden ? null : $("panel").dataset.kind);

export function showPanel(title, body, onClose, kind) {
	const panel = $("panel");
	const was = panelKind();
	if (kind !== "beside" && (was === null || was === "beside")) before = document.activeElement;
	close = onClose;
	panel.hidden = false;
	panel.dataset.kind = kind;
	panel.setAttribute("aria-label", title);
	fill(panel, el("div.panel-head", el("h2", title),
		button(".icon", () => closePanel(), { "aria-label": "Close", title: "Close (Esc)" }, icon("close"))), body);
	if (kind === "beside") giveBack();
	else if (was !== kind) panel.focus({ preventScroll: true });
	panel.scrollTop = 0;
}

/** Closes the panel; `quiet` if the address says already that it is closed. */
export function closePanel(quiet = false) {
	const panel = $("panel");
	if (panel.hidden) return false;
	panel.hidden = true;
	panel.replaceChildren();
	const done = close;
	close = null;
	if (!quiet) done?.();
	giveBack();
	return true;
}

/** The focus goes back to where it was before the panel took it, unless it has moved on. */
function giveBack() {
	const node = before;
	before = null;
	const now = document.activeElement;
	if (node?.isConnected && (now === document.body || $("panel").contains(now))) node.focus({ preventScroll: true });
}

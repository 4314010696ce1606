// The panel at the right: one document, or the judgements. It never blocks the page behind it.
import { $, button, el, fill, icon } from "./dom.js";

let close = null;
let before = null;

export const panelKind = () => ($("panel").hidden ? null : $("panel").dataset.kind);

export function showPanel(title, body, onClose, kind) {
	const panel = $("panel");
	const opened = panel.hidden || panel.dataset.kind !== kind;
	if (panel.hidden) before = document.activeElement;
	close = onClose;
	panel.hidden = false;
	panel.dataset.kind = kind;
	panel.setAttribute("aria-label", title);
	document.body.classList.add("with-panel");
	fill(panel, el("div.panel-head", el("h2", title),
		button(".icon", () => closePanel(), { "aria-label": "Close", title: "Close (Esc)" }, icon("close"))), body);
	if (opened) panel.focus({ preventScroll: true });
	panel.scrollTop = 0;
}

/** Closes the panel; `quiet` if the address says already that it is closed. */
export function closePanel(quiet = false) {
	const panel = $("panel");
	if (panel.hidden) return false;
	panel.hidden = true;
	panel.replaceChildren();
	document.body.classList.remove("with-panel");
	const done = close;
	close = null;
	if (!quiet) done?.();
	if (before?.isConnected) before.focus({ preventScroll: true });
	return true;
}

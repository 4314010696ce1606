// Sets the theme before anything is drawn, so that the page does not flash.
(() => {
	let theme = null;
	try { theme = localStorage.getItem("vizsla-theme"); } catch { /* storage may be refused */ }
	if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
})();

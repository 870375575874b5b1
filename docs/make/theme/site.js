// What scrolls takes the focus, so that a keyboard can scroll it, although the theme takes that back; and each code block's buttons have a name of their own.
let blocks = 0;
function reach() {
  for (const one of document.querySelectorAll("pre > code:not([tabindex])")) one.tabIndex = 0;
  for (const one of document.querySelectorAll(".md-code__nav:not([aria-label])")) {
    blocks += 1;
    one.setAttribute("aria-label", `Code block ${blocks}`);
  }
}
new MutationObserver(reach).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["tabindex"] });
reach();

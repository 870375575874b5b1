// Keeps the page fresh and spares clicks. Everything works without it.
"use strict";
document.documentElement.classList.add("js");
const bottom = list => { list.scrollTop = list.scrollHeight; };
const atBottom = list => list.scrollHeight - list.scrollTop - list.clientHeight < 80;

const take = fresh => {
  for (const part of document.querySelectorAll("[data-keep]")) {
    const other = fresh.getElementById(part.id);
    if (!other || other.innerHTML === part.innerHTML || part.contains(document.activeElement) && document.activeElement.matches("input, textarea")) continue;
    const open = [...part.querySelectorAll("details[open]")].map(one => one.id);
    const stay = part.id !== "home" && atBottom(part), top = part.scrollTop;
    part.innerHTML = other.innerHTML;
    for (const id of open) { const one = document.getElementById(id); if (one) one.open = true; }
    if (stay) bottom(part); else part.scrollTop = top;
  }
  const key = root => root.querySelector("#modal [data-key]")?.dataset.key ?? "";
  if (key(document) !== key(fresh)) {
    document.getElementById("modal").innerHTML = fresh.getElementById("modal").innerHTML;
    document.querySelector("#modal [autofocus], #modal .inside input:not([type=hidden]), #modal .inside textarea")?.focus();
  }
  document.getElementById("side").querySelector(".scroller").innerHTML = fresh.querySelector("#side .scroller").innerHTML;
  document.body.dataset.version = fresh.body.dataset.version;
};
const parse = text => new DOMParser().parseFromString(text, "text/html");

let held = false; // a press on what is replaced meanwhile would be lost
document.addEventListener("pointerdown", () => { held = true; }, true);
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => setTimeout(() => { held = false; }), true);

const watch = async () => {
  try {
    const { version } = await (await fetch(document.body.dataset.watch)).json();
    if (String(version) !== document.body.dataset.version) {
      const page = await fetch(location.href);
      if (page.ok) { const text = await page.text(); if (!held) take(parse(text)); }
    }
  } catch { /* the server is gone or comes back: try again */ }
  setTimeout(watch, 400);
};

let waiting;
document.addEventListener("input", event => {
  const name = event.target.dataset?.search;
  if (!name || event.target.value.length < Number(event.target.dataset.least)) return;
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    const form = document.getElementById("dialog"), body = new FormData(form);
    body.append("do", `search:${name}`);
    const page = parse(await (await fetch(form.action, { method: "POST", body })).text());
    const offers = `[data-offers="${CSS.escape(name)}"]`, fresh = page.querySelector(offers);
    if (fresh) document.querySelector(offers)?.replaceChildren(...fresh.childNodes);
  }, 250);
});
document.addEventListener("change", event => {
  if (event.target.matches("select[data-go]")) event.target.form.requestSubmit();
  const does = event.target.dataset.do;
  if (does) {  // the app hears of it at once, and may change the form
    const button = Object.assign(document.createElement("button"), { name: "do", value: does, hidden: true });
    event.target.form.append(button);
    event.target.form.requestSubmit(button);
  }
});
document.addEventListener("click", event => {
  for (const one of document.querySelectorAll("details.menu[open]")) if (!one.contains(event.target)) one.open = false;
});
document.addEventListener("keydown", event => {
  if (event.key !== "Escape") return;
  const open = document.querySelector("details.menu[open]");
  if (open) open.open = false; else document.querySelector("#modal [value=close]")?.click();
});
for (const list of document.querySelectorAll("#list, #thread")) bottom(list);
watch();

// The page's only script. Every form and link works without it; it swaps parts in place, follows changes and filters.
"use strict";

const parse = (text) => new DOMParser().parseFromString(text, "text/html");

// ------------------------------------------------------------------ forms in place

function showPage(fresh, url) {
  const next = fresh.getElementById("main");
  if (!next || fresh.body.classList.contains("bare")) return location.assign("/"); // signed out meanwhile
  document.title = fresh.title;
  document.getElementById("main").replaceWith(next);
  const side = document.querySelector(".side"), newSide = fresh.querySelector(".side");
  if (side && newSide) side.replaceWith(newSide);
  if (url !== location.href) history.pushState(null, "", url);
  next.focus({ preventScroll: true });
  scrollTo(0, 0);
  prepare();
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-swap]") || event.defaultPrevented) return;
  event.preventDefault();
  const data = new URLSearchParams(new FormData(form, event.submitter));
  const post = form.method === "post";
  const action = event.submitter?.getAttribute("formaction") || form.getAttribute("action") || location.pathname;
  const buttons = [...form.querySelectorAll("button")];
  buttons.forEach((button) => (button.disabled = true));
  form.setAttribute("aria-busy", "true");
  try {
    const address = post ? action : `${action}?${data}`;
    const response = await fetch(address, { method: post ? "POST" : "GET", body: post ? data : null });
    const text = await response.text();
    if (!(response.headers.get("content-type") || "").startsWith("text/html")) return location.assign(response.url);
    const fresh = parse(text), problem = fresh.getElementById("problem");
    if (problem && !response.ok) { // what was typed stays, and a switch goes back
      if (form.querySelector("[data-send]")) form.reset();
      return note(problem.textContent);
    }
    showPage(fresh, post && !response.redirected ? location.href : response.url);
  } catch {
    note(LOST);
    if (form.querySelector("[data-send]")) form.reset();
  } finally {
    buttons.forEach((button) => (button.disabled = false));
    form.removeAttribute("aria-busy");
  }
});

addEventListener("popstate", () => location.reload());

const LOST = "The gateway does not answer. Is it running?";

function note(text) {
  let box = document.getElementById("lost");
  if (!box) {
    box = Object.assign(document.createElement("div"), { id: "lost", className: "flash bad" });
    box.setAttribute("role", "alert");
    document.getElementById("main")?.prepend(box);
  }
  box.textContent = text;
}

// ------------------------------------------------------------------ live parts: data-live="topic topic", with an id

let source = null, pending = new Set(), busy = false;

const topicsOf = (part) => part.dataset.live.split(" ");

async function refresh() {
  if (busy || !pending.size || document.hidden) return;
  busy = true;
  const changed = pending;
  pending = new Set();
  try {
    const address = location.href;
    const response = await fetch(address, { headers: { "X-Live": "1" } });
    const fresh = parse(await response.text());
    if (fresh.body.classList.contains("bare")) return location.assign("/"); // signed out meanwhile
    if (!response.ok || address !== location.href) return;
    for (const part of document.querySelectorAll("[data-live]")) {
      if (!topicsOf(part).some((topic) => changed.has(topic)) || part.contains(document.activeElement)) continue;
      const next = fresh.getElementById(part.id);
      if (!next || next.outerHTML === part.outerHTML) continue;
      const open = [...part.querySelectorAll("details[open][id]")].map((one) => one.id);
      part.replaceWith(next);
      open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
      if (next.dataset.follow !== undefined) next.scrollTop = next.scrollHeight;
    }
    prepareParts();
  } catch {
    // The gateway is away; the stream connects again by itself.
  } finally {
    busy = false;
    if (pending.size) setTimeout(refresh, 500);
  }
}

function listen() {
  const topics = [...new Set([...document.querySelectorAll("[data-live]")].flatMap(topicsOf))].sort().join(",");
  if (source && source.topics === topics) return;
  source?.close();
  source = null;
  if (!topics || document.hidden) return;
  source = new EventSource(`/page/events?topics=${encodeURIComponent(topics)}`);
  source.topics = topics;
  source.addEventListener("change", (event) => {
    pending.add(event.data);
    refresh();
  });
  let lost = false;
  source.addEventListener("error", () => {
    lost = true;
    if (source?.readyState === EventSource.CLOSED) refreshAll(); // refused for good: perhaps signed out
    else note(LOST);
  });
  source.addEventListener("open", () => {
    if (!lost) return;
    lost = false;
    document.getElementById("lost")?.remove();
    refreshAll();
  });
}

function refreshAll() {
  document.querySelectorAll("[data-live]").forEach((part) => topicsOf(part).forEach((topic) => pending.add(topic)));
  refresh();
}

// A browser has six connections to one host: a tab that nobody sees does not keep one.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
    return;
  }
  listen();
  refreshAll();
});
addEventListener("pagehide", () => source?.close());

// ------------------------------------------------------------------ lists: data-filter="id of the list"

function filter(input) {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const list = document.getElementById(input.dataset.filter);
  if (!list) return;
  let shown = 0;
  for (const row of list.querySelectorAll("[data-row]")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  const count = document.getElementById(`${input.dataset.filter}-count`);
  if (count) count.textContent = words.length ? `${shown} shown` : "";
}

document.addEventListener("input", (event) => {
  if (event.target.matches?.("input[data-filter]")) filter(event.target);
});

// ------------------------------------------------------------------ buttons: copy, and switches that send their form

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = before), 1500);
});

document.addEventListener("change", (event) => {
  if (event.target.matches?.("[data-send]")) event.target.form.requestSubmit();
});

// ------------------------------------------------------------------ start

function prepareParts() {
  document.querySelectorAll("input[data-filter]").forEach((input) => input.value && filter(input));
}

function prepare() {
  document.documentElement.classList.add("scripted");
  document.querySelectorAll("[data-follow]").forEach((box) => (box.scrollTop = box.scrollHeight));
  const here = document.querySelector(".side [aria-current]"), nav = here?.closest("nav"); // one line on a phone
  if (nav) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
  prepareParts();
  listen();
}

prepare();

// The page: who one is, what arrives, what one writes.
import { translate, word } from "./words.js";
import { day, make, message } from "./render.js";

const $ = (id) => document.getElementById(id);
const shown = new Map(); // message id → its element
let me = 0;
let stream;
let menu = [];
let botUsername = "";
let typingTimer, toastTimer;

translate(document);

async function begin() {
  let state;
  try {
    state = await (await fetch("/chat/state")).json();
  } catch {
    $("status").textContent = word("connecting");
    setTimeout(begin, 2000);
    return;
  }
  botUsername = state.bot.username;
  $("bot").textContent = document.title = state.bot.name;
  $("avatar").textContent = state.bot.name.slice(0, 1).toUpperCase();
  $("who").replaceChildren(...state.people.map((p) => make("option", { value: p.id }, p.name || p.username || String(p.id))));
  const wanted = new URLSearchParams(location.search).get("who") ?? sessionStorage.getItem("who");
  if (state.people.some((p) => String(p.id) === wanted)) $("who").value = wanted;
  const nobody = state.people.length === 0;
  for (const id of ["who", "composer", "send", "attach"]) $(id).disabled = nobody;
  if (nobody) {
    $("status").textContent = word("nobody");
    return;
  }
  become(Number($("who").value));
}

// become opens another person's chat. What is in the composer stays: an
// invitation copied as one can be used as another.
function become(person) {
  me = person;
  sessionStorage.setItem("who", String(person));
  stream?.close();
  stream = new EventSource("/chat/events?who=" + person);
  stream.onopen = status;
  stream.onerror = () => { $("status").textContent = word("connecting"); };
  stream.onmessage = (event) => take(JSON.parse(event.data));
}

function status() {
  $("status").textContent = $("typing").hidden ? word("bot") : word("typing");
}

function take(news) {
  const atEnd = nearEnd();
  if (news.reset) {
    shown.clear();
    $("messages").replaceChildren();
  }
  let mine = false;
  for (const m of news.messages ?? []) {
    mine ||= m.mine && !shown.has(m.id);
    place(m);
  }
  arrange();
  typing(news.typing);
  menu = news.menu ?? [];
  suggest();
  for (const t of news.toasts ?? []) t.alert ? alertBox(t.text) : toast(t.text);
  if (news.reset || atEnd || mine) toEnd();
  scrolled();
}

function place(m) {
  const old = shown.get(m.id);
  if (m.deleted) {
    old?.remove();
    shown.delete(m.id);
    return;
  }
  const el = message(m, {
    press: (data, key) => press(m.id, data, key),
    command: say,
    link: openLink,
  });
  el.dataset.day = day(m.time);
  shown.set(m.id, el);
  if (!old) {
    $("messages").append(el);
    return;
  }
  // Whoever stands on a button by keyboard keeps standing there.
  const stood = [...old.querySelectorAll("button")].indexOf(document.activeElement);
  old.replaceWith(el);
  if (stood >= 0) (el.querySelectorAll("button")[stood] ?? $("composer")).focus({ preventScroll: true });
}

// arrange sets the day lines and joins neighbours of one side into groups.
function arrange() {
  for (const line of document.querySelectorAll(".day")) line.remove();
  let last;
  for (const el of $("messages").querySelectorAll(".message")) {
    const newDay = el.dataset.day !== last?.dataset.day;
    if (newDay) el.before(make("li", { class: "day" }, make("span", {}, el.dataset.day)));
    el.classList.toggle("again", !newDay && el.dataset.from === last?.dataset.from);
    last = el;
  }
  $("empty").hidden = shown.size > 0;
}

function typing(left) {
  clearTimeout(typingTimer);
  $("typing").hidden = !(left > 0);
  if (left > 0) typingTimer = setTimeout(() => typing(0), left);
  if (stream?.readyState === EventSource.OPEN) status();
}

// pinned: the end is in view and stays so when the room changes (keyboard,
// menu, a growing composer).
let pinned = true;
new ResizeObserver(() => { if (pinned) toEnd(); }).observe($("wall"));
const nearEnd = () => $("wall").scrollHeight - $("wall").scrollTop - $("wall").clientHeight < 120;
const toEnd = () => { $("wall").scrollTop = $("wall").scrollHeight; };
const scrolled = () => {
  pinned = nearEnd();
  $("down").hidden = pinned;
};

function toast(text) {
  clearTimeout(toastTimer);
  $("toast").textContent = text;
  $("toast").hidden = false;
  toastTimer = setTimeout(() => { $("toast").hidden = true; }, 4000);
}

function alertBox(text) {
  $("alert-text").textContent = text;
  if (!$("alert").open) $("alert").showModal();
}

async function post(path, body, type = "application/json") {
  const answer = await fetch(path, {
    method: "POST", headers: { "Content-Type": type },
    body: type === "application/json" ? JSON.stringify(body) : body,
  });
  if (!answer.ok) throw new Error(String(answer.status));
}

async function say(text) {
  try {
    await post("/chat/say", { who: me, text });
    return true;
  } catch {
    toast(word("notSent"));
    return false;
  }
}

async function press(id, data, key) {
  key.setAttribute("aria-busy", "true");
  setTimeout(() => key.removeAttribute("aria-busy"), 3000);
  try {
    await post("/chat/press", { who: me, message: id, data });
  } catch {
    key.removeAttribute("aria-busy");
    toast(word("notSent"));
  }
}

// openLink opens another tab; a deep link to this very bot becomes the
// command it stands for, ready to be sent as whoever one is then.
function openLink(url, event) {
  const target = new URL(url);
  const payload = target.searchParams.get("start");
  if (["t.me", "telegram.me"].includes(target.hostname) && payload &&
      target.pathname.slice(1).toLowerCase() === botUsername.toLowerCase()) {
    event?.preventDefault();
    compose("/start " + payload);
    return;
  }
  if (!event) window.open(url, "_blank", "noopener,noreferrer");
}

function compose(text) {
  $("composer").value = text;
  grow();
  suggest();
  $("composer").focus();
}

function grow() {
  const box = $("composer");
  box.style.height = "auto";
  box.style.height = Math.min(box.scrollHeight, 160) + "px";
}

// suggest lists the bot's commands while one is being typed.
function suggest() {
  const typed = $("composer").value.match(/^\/(\w*)$/)?.[1];
  const fits = typed === undefined ? [] : menu.filter((c) => c.command.startsWith(typed));
  $("menu").hidden = fits.length === 0;
  $("menu").replaceChildren(...fits.map((c) => {
    const pick = make("button", { type: "button" }, make("b", {}, "/" + c.command), make("span", {}, c.description));
    pick.addEventListener("click", () => {
      compose("");
      say("/" + c.command);
    });
    return make("li", {}, pick);
  }));
}

$("write").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = $("composer").value;
  if (!text.trim() || !me) return;
  compose("");
  if (!await say(text) && !$("composer").value) compose(text);
});

$("composer").addEventListener("input", () => { grow(); suggest(); });
$("composer").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("write").requestSubmit();
  } else if (event.key === "ArrowUp" && !$("menu").hidden) {
    event.preventDefault();
    $("menu").querySelector("li:last-child button").focus();
  }
});
$("menu").addEventListener("keydown", (event) => {
  const item = document.activeElement.closest("li");
  const next = { ArrowUp: item?.previousElementSibling, ArrowDown: item?.nextElementSibling }[event.key];
  if (next !== undefined) {
    event.preventDefault();
    (next?.querySelector("button") ?? $("composer")).focus();
  } else if (event.key === "Escape") {
    $("composer").focus();
  }
});

$("who").addEventListener("change", () => become(Number($("who").value)));
$("start").addEventListener("click", () => say("/start"));
$("wall").addEventListener("scroll", scrolled, { passive: true });
$("down").addEventListener("click", toEnd);
$("attach").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  const [file] = $("file").files;
  $("file").value = "";
  if (!file) return;
  const caption = $("composer").value.trim();
  const query = new URLSearchParams({ who: me, name: file.name, caption });
  try {
    await post("/chat/send?" + query, file, "application/octet-stream");
    compose("");
  } catch {
    toast(word("notSent"));
  }
});

begin();

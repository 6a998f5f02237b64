// From messages to elements. Text of others only ever becomes a text node;
// links only ever lead to http, https or a mail address.
import { language, word } from "./words.js";

const clock = new Intl.DateTimeFormat(language, { hour: "numeric", minute: "2-digit" });
const calendar = new Intl.DateTimeFormat(language, { day: "numeric", month: "long" });

export function make(tag, attributes = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) el.setAttribute(name, value);
  }
  el.append(...children);
  return el;
}

export function day(time) {
  const date = new Date(time);
  return date.toDateString() === new Date().toDateString() ? word("today") : calendar.format(date);
}

export function safeLink(url) {
  if (!/^[a-z][a-z0-9+.-]*:/i.test(url)) url = "http://" + url;
  try {
    const parsed = new URL(url);
    return ["http:", "https:", "mailto:"].includes(parsed.protocol) ? parsed.href : undefined;
  } catch {
    return undefined;
  }
}

function size(bytes) {
  const units = ["B", "KB", "MB"];
  let at = 0;
  for (; bytes >= 1000 && at < units.length - 1; at++) bytes /= 1000;
  return new Intl.NumberFormat(language, { maximumFractionDigits: at ? 1 : 0 }).format(bytes) + " " + units[at];
}

// message builds the list item for one message. act carries out what a press
// in it asks for: act.press(data), act.command(text), act.link(url, event).
export function message(m, act) {
  const bubble = make("div", { class: "bubble" });
  if (m.reply_to) {
    bubble.append(make("div", { class: "reply" },
      make("b", {}, m.reply_to.mine ? word("you") : document.querySelector("#bot").textContent),
      make("span", {}, m.reply_to.text.slice(0, 120))));
  }
  if (m.document) {
    bubble.append(make("a", { class: "file", href: "/chat/file?id=" + encodeURIComponent(m.document.id), download: m.document.name },
      make("span", { class: "sheet", "aria-hidden": "true" }, (m.document.name.match(/\.(\w{1,4})$/)?.[1] ?? "·").toUpperCase()),
      make("span", { class: "name" }, m.document.name, make("small", {}, size(m.document.size)))));
  }
  const text = make("div", { class: "text" });
  text.append(...styled(m.text, m.entities ?? [], act));
  const meta = make("span", { class: "meta" });
  if (m.edited) meta.append(make("span", { class: "edited" }, word("edited")));
  meta.append(make("time", { datetime: new Date(m.time).toISOString() }, clock.format(m.time)));
  bubble.append(text, meta);

  const item = make("li", { class: "message", "data-id": m.id, "data-from": m.mine ? "me" : "bot" }, bubble);
  if (m.buttons?.length) item.append(keyboard(m.buttons, act));
  return item;
}

function keyboard(rows, act) {
  const board = make("div", { class: "keys" });
  for (const row of rows) {
    const line = make("div", { class: "row" });
    for (const b of row) {
      const url = b.url && safeLink(b.url);
      const key = make("button", { type: "button", "data-label": b.text, "data-url": url }, b.text);
      if (b.url) {
        key.classList.add("out");
        key.setAttribute("aria-label", `${b.text} (${word("opens")})`);
        key.disabled = !url;
        key.addEventListener("click", () => act.link(url));
      } else {
        key.addEventListener("click", () => act.press(b.callback_data, key));
      }
      line.append(key);
    }
    board.append(line);
  }
  return board;
}

// styled turns text and entities into nodes. Offsets are UTF-16 units, which
// is what a string counts in here. An entity that crosses the end of another
// is cut there and goes on behind it.
function styled(text, entities, act) {
  const sorted = entities.map((e) => ({ ...e, end: e.offset + e.length }))
    .sort((a, b) => a.offset - b.offset || b.end - a.end);
  return span(text, 0, text.length, sorted, act);
}

const blocks = new Set(["pre", "blockquote", "expandable_blockquote"]);

function span(text, from, to, entities, act) {
  const nodes = [];
  const waiting = [...entities];
  let at = from;
  let afterBlock = false;
  const plain = (end, beforeBlock) => {
    let piece = text.slice(at, end);
    // A block brings its own line breaks.
    if (afterBlock && piece.startsWith("\n")) piece = piece.slice(1);
    if (beforeBlock && piece.endsWith("\n")) piece = piece.slice(0, -1);
    if (piece) nodes.push(document.createTextNode(piece));
    if (piece || end > at) afterBlock = false;
    at = end;
  };
  while (waiting.length) {
    const e = waiting.shift();
    const start = Math.max(e.offset, at);
    const end = Math.min(e.end, to);
    if (start >= end) continue;
    plain(start, blocks.has(e.type));
    const inside = [];
    while (waiting.length && waiting[0].offset < end) {
      const next = waiting.shift();
      inside.push({ ...next, end: Math.min(next.end, end) });
      if (next.end > end) {
        const rest = { ...next, offset: end };
        const place = waiting.findIndex((w) => w.offset > end);
        waiting.splice(place < 0 ? waiting.length : place, 0, rest);
      }
    }
    const piece = text.slice(start, end);
    nodes.push(element(e, piece, e.type === "pre" ? [piece] : span(text, start, end, inside, act), act));
    at = end;
    afterBlock = blocks.has(e.type);
  }
  plain(to, false);
  return nodes;
}

const tags = {
  bold: "strong", italic: "em", underline: "u", strikethrough: "s", code: "code",
  blockquote: "blockquote", expandable_blockquote: "blockquote",
};

function element(e, piece, children, act) {
  switch (e.type) {
    case "pre": {
      const block = make("pre", { tabindex: "0" }, make("code", {}, ...children));
      if (e.language) block.dataset.language = e.language;
      return block;
    }
    case "text_link": return anchor(e.url, children, act);
    case "url": return anchor(piece, children, act);
    case "email": return anchor("mailto:" + piece, children, act);
    case "bot_command": {
      const command = make("button", { type: "button", class: "inline" }, ...children);
      command.addEventListener("click", () => act.command(piece));
      return command;
    }
    case "spoiler": {
      const cover = make("button", { type: "button", class: "inline spoiler", "aria-label": word("spoiler") }, ...children);
      cover.addEventListener("click", () => {
        cover.classList.remove("spoiler");
        cover.removeAttribute("aria-label");
      });
      return cover;
    }
    case "mention": case "text_mention": case "hashtag": case "cashtag":
      return make("span", { class: "tag" }, ...children);
  }
  return make(tags[e.type] ?? "span", {}, ...children);
}

function anchor(url, children, act) {
  const href = safeLink(url);
  if (!href) return make("span", {}, ...children);
  const a = make("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);
  a.addEventListener("click", (event) => act.link(href, event));
  return a;
}

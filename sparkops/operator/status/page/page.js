// The page of `sparkops ui`: polls /status.json and draws it. Every text of a fleet becomes a text node, never HTML.
"use strict";

const TOKEN = new URLSearchParams(location.search || location.hash.slice(1)).get("token") || "";
history.replaceState(null, "", `/#token=${TOKEN}`); // a reload keeps it, and no later request has it in its address
const RETRY_MS = 3000, LATE_S = 10, HOUR = 60;
const STATES = ["failed", "degraded", "unknown", "stopping", "starting", "healthy", "stopped"];
const COLORS = {
  __proto__: null, // a service may have any name, also one of Object's
  healthy: "ok", up: "ok", ok: "ok", reachable: "ok", starting: "busy", degraded: "busy", stopping: "busy",
  cordoned: "busy", "guard silent": "busy", failed: "bad", failing: "bad", down: "bad", unreachable: "bad",
};
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\p{Cs}/gu; // as foreign.py
const URGENT = ["NEEDS_PERSON", "GUARD_DOWN", "GATEWAY_DOWN", "LIVE_NOT_RUNNING", "REPLICA_DOWN"];
let shown = null, tag = "", cursor = null;

// ---- elements

const visible = (text) => String(text).replace(CONTROL, (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));

function make(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function drawn(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : visible(value));
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

// Changes what differs, so that focus, selection and open details stay. Elements are the same by name and data-key.
function patch(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) return void (old.data !== fresh.data && (old.data = fresh.data));
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  const left = new Set(old.childNodes);
  const pairs = [...fresh.childNodes].map((child) => {
    const twin = [...left].find((one) => one.nodeName === child.nodeName && one.dataset?.key === child.dataset?.key);
    left.delete(twin);
    return [twin, child];
  });
  left.forEach((child) => child.remove()); // first, so that no twin moves because of it and loses the focus
  pairs.forEach(([twin, child], at) => {
    if (twin) patch(twin, child);
    if (old.childNodes[at] !== (twin || child)) old.insertBefore(twin || child, old.childNodes[at] || null);
  });
}

function update(element, children) {
  patch(element, fill(element.cloneNode(false), null, children));
}

// ---- words

const percent = (share) => `${Math.round(share * 100)} %`;
const clock = (unix_s) => new Date(unix_s * 1000).toLocaleTimeString([], { hour12: false });
const day = (unix_s) => new Date(unix_s * 1000).toLocaleDateString("sv"); // as 2026-11-30
const moment = (unix_s) => day(unix_s) === day(Date.now() / 1000) ? clock(unix_s) : `${day(unix_s)} ${clock(unix_s)}`;
const minuteClock = (minute) => clock(minute * 60).slice(0, 5);
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const figure = (value) => value === 0 ? "0" : value < 10 ? value.toFixed(1) : String(Math.round(value));
const whole = (value) => String(Math.round(value));
const seconds = (value) => value < 1 ? `${value.toFixed(2)} s` : `${value.toFixed(1)} s`;

function age(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit_s, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (value >= unit_s) return `${Math.floor(value / unit_s)} ${unit}`;
  }
  return `${Math.floor(value)} s`;
}

const named = (text, kind = "") => make("bdi", { class: `${kind} ${text.length > 40 ? "" : "short"}` }, text);
const state = (word, color = COLORS[word] || "faint") => make("span", { class: `state ${color} ${word.length > 40 ? "" : "short"}` }, word);

function steps(text) {
  return (text || "").split("\n").filter(Boolean).map((line) => make("p", { class: "next" },
    make("span", {}, "next:"), make("code", {}, line),
    /^sparkops [\w@%+=:./ -]+$/.test(line) && make("button", { type: "button", "data-copy": line, "aria-label": `Copy: ${line}` }, "Copy")));
}

function bar(share, label, kind) {
  const width = `${Math.round(Math.min(1, Math.max(0, share)) * 1000) / 10}%`;
  return drawn("svg", { class: `bar ${kind}`, role: "img", "aria-label": label },
    drawn("rect", { class: "track", width: "100%", height: "100%" }), drawn("rect", { class: "fill", width, height: "100%" }));
}

// ---- what is wrong

function troubles(status) {
  const lost = status.nodes.filter((node) => !node.reachable).map((node) => (
    { code: "UNREACHABLE", where: node.name, detail: node.error, next: node.next_step, worst: true }));
  const found = status.findings.map((one) => (
    { code: one.code, where: `${one.container} on ${one.node}`, since: one.since, detail: one.detail, next: one.next_step, worst: true }));
  const drift = status.drift.map((one) => (
    { code: one.code, where: [one.service, one.node && `on ${one.node}`].filter(Boolean).join(" "), detail: one.detail,
      next: one.next_step, worst: URGENT.includes(one.code) }));
  const closed = status.nodes.filter((node) => node.cordon).map((node) => (
    { code: "CORDONED", where: node.name, detail: [node.cordon, node.displaced.length && `taken from it: ${node.displaced.join(", ")}`]
      .filter(Boolean).join("; "), next: `sparkops node return ${node.name}` }));
  return [...lost, ...found, ...drift].sort((a, b) => (b.worst || 0) - (a.worst || 0)).concat(closed);
}

function trouble(one) {
  return make("li", { class: one.worst && "worst" },
    make("p", {}, make("span", { class: `code ${one.worst ? "bad" : "busy"}` }, one.code), make("bdi", {}, one.where),
      one.since > 0 && make("span", { class: "faint" }, `since ${moment(one.since)}`)),
    make("p", { class: "detail" }, one.detail), steps(one.next));
}

// The answer to "does it serve?": parts of one line, each with its color.
function verdict(status, found) {
  const wanted = status.services.filter((service) => service.state !== "stopped");
  const failed = wanted.filter((service) => ["failed", "unknown"].includes(service.state));
  const well = wanted.filter((service) => service.state === "healthy").length;
  const swaps = status.services.filter((service) => service.swap).length;
  const color = failed.length ? "bad" : well < wanted.length ? "busy" : "ok";
  const parts = [wanted.length ? [`${well} of ${plural(wanted.length, "service")} healthy`, color] : ["No service runs", "faint"]];
  if (failed.length) parts.push([failed.map((service) => `${service.name} ${service.state}`).join(", "), "bad"]);
  if (swaps) parts.push([`${plural(swaps, "swap")} in progress`, "busy"]);
  if (found.length) parts.push([plural(found.length, "problem"), found.some((one) => one.worst) ? "bad" : "busy"]);
  return parts;
}

// ---- services

function service(row, phases, samples, end) {
  const live = row.live && `${row.live.release}, ${row.live.slot}`;
  return make("article", { class: "service panel", "data-key": row.name, "aria-label": `Service ${row.name}` },
    make("div", { class: "head", "data-key": "head" }, make("h3", {}, make("bdi", {}, row.name)), state(row.state),
      row.url && make("span", { class: "url mono" }, row.url)),
    make("div", { class: "notes", "data-key": "notes" },
      live && make("p", { class: "faint" }, "active release ", make("bdi", { class: "mono" }, live)),
      row.live?.changes?.map((change) => make("p", { class: "faint" }, "with ", make("code", {}, `--set ${change}`))),
      row.unread && make("p", { class: "busy" }, row.unread),
      row.hold && make("p", { class: "busy" }, `on hold: ${row.hold}`),
      row.warm && make("p", { class: "faint" }, warm(row.warm)),
      row.waiting && make("p", { class: "busy" }, waiting(row.waiting)),
      steps(row.next_step)),
    row.swap && swap(row, phases),
    row.replicas.length > 0 && replicas(row),
    samples.length > 0 ? plots(row.name, samples, end) : row.state !== "stopped"
      && make("p", { class: "faint gap" }, "No samples of the last hour: each guard of this version keeps one a minute."),
    row.events.length > 0 && make("details", { open: true },
      make("summary", {}, `Last events, the newest ${age(row.event_age_s)} ago; all: sparkops history ${row.name}`),
      make("ol", { class: "events mono" }, row.events.map((event) => make("li", {}, event)))));
}

function warm(row) {
  if (row.by_name) return `${row.release} is kept warm; only rollback --to ${row.release} returns to it`;
  const until = row.until === null ? "" : ` until ${moment(row.until)}`;
  return `${row.release} is kept warm${until}; rollback switches in seconds`;
}

function waiting(row) {
  return `${row.requests} of at most ${plural(row.most, "request")} wait, the longest ${age(row.longest_s)} of ${age(row.limit_s)}; `
    + `about ${age(row.left_s)} left`;
}

function swap(row, phases) {
  const { release, mode, phase, reverting, waits_for_promote, why } = row.swap;
  const all = Object.hasOwn(phases, mode) ? phases[mode] : [phase], at = all.indexOf(phase);
  const starting = row.replicas.filter((replica) => replica.release === release).flatMap((replica) => replica.ranks)
    .filter((rank) => rank.progress && rank.health !== "ok").sort((a, b) => (b.left_s || 0) - (a.left_s || 0))[0];
  return make("div", { class: reverting ? "swap reverts" : "swap", "data-key": "swap" },
    make("p", {}, reverting ? "Reverting the swap to " : "Swap to ", make("bdi", { class: "mono" }, release), `, ${mode}`),
    why && make("p", { class: "detail" }, why),
    make("ol", { class: "phases", "aria-label": "Phases of the swap" }, all.map((name, number) => make("li",
      { class: number < at && "past", "aria-current": number === at && "step" }, name))),
    starting && make("p", {}, starting.progress),
    starting?.left_s != null && starting.up_s != null
      && bar(starting.up_s / Math.max(1, starting.up_s + starting.left_s), `about ${age(starting.left_s)} left`, "time"),
    waits_for_promote && steps(`sparkops promote ${row.name}\nsparkops rollback ${row.name}`));
}

function replicas(row) {
  const cell = (label, content, name) => make("td", { class: [name, content === null && "empty"].filter(Boolean).join(" ") || null,
    "data-label": label }, content);
  const lines = row.replicas.flatMap((replica) => replica.ranks.map((rank, number) => [
    make("tr", { class: rank.problem && "problem" },
      cell("Release", number ? null : [named(replica.release, "release mono"), make("br"),
        make("span", { class: replica.active ? "ok" : "faint" }, `${replica.slot}, ${replica.active ? "active" : "not active"}`)]),
      cell("Node", named(rank.node)),
      cell("State", [rankState(rank), rank.stage && rank.stage !== "serving" && [make("br"), make("span", { class: "faint" }, rank.stage)]]),
      cell("Requests", rank.running === null ? null : `${rank.running} run, ${rank.waiting} wait`, "number"),
      cell("Tokens/s", rank.tok_s === null ? null : figure(rank.tok_s), "number"),
      cell("First token", rank.ttft_s === null ? null : seconds(rank.ttft_s), "number"),
      cell("KV cache", rank.kv_use === null ? null : percent(rank.kv_use), "number"),
      cell("Up", rank.up_s === null ? null : age(rank.up_s), "number")),
    rank.problem && make("tr", {}, make("td", { colspan: 8 }, make("p", { class: "detail bad" }, rank.problem), steps(rank.next_step)))]));
  const heads = ["Release", "Node", "State", "Requests", "Tokens/s", "First token", "KV cache", "Up"];
  return make("table", { class: "replicas", "aria-label": `Containers of ${row.name}` },
    make("thead", {}, make("tr", {}, heads.map((head, number) => make("th", { scope: "col", class: number > 2 && "number" }, head)))),
    make("tbody", {}, lines));
}

function rankState(rank) {
  const ended = rank.exit_code !== null ? `${rank.state} (${rank.exit_code})` : rank.state;
  if (rank.source === "unknown") return state("not read", "faint");
  const color = rank.exit_code === null ? COLORS[rank.health] : rank.problem ? "bad" : "faint";
  return state(rank.source === "reported" ? `${rank.health}, as its guard reports` : rank.health === "ok" ? "ok" : ended, color);
}

// ---- the last hour

const PLOTS = [
  ["tok_s", "Tokens/s", figure], ["ttft_s", "First token", seconds],
  ["waiting", "Waiting", whole], ["errors", "Errors/min", whole],
];

function plots(name, samples, end) {
  const byMinute = new Map(samples.map((one) => [one.minute, one]));
  const minutes = Array.from({ length: HOUR }, (_, at) => byMinute.get(end - HOUR + 1 + at) || null);
  const at = cursor?.service === name ? cursor.minute - (end - HOUR + 1) : -1;
  return make("div", { class: "plots", "data-key": "plots", role: "group", "aria-label": `Last hour of ${name}` },
    PLOTS.map(([key, title, words]) => plot(name, key, title, words, minutes.map((one) => one ? one[key] : null), at, end)));
}

function plot(name, key, title, words, values, at, end) {
  const known = values.filter((value) => value !== null), most = Math.max(0, ...known);
  const last = values.findLast((value) => value !== null), top = most || 1;
  const said = at >= 0 ? `${values[at] == null ? "–" : words(values[at])} at ${minuteClock(end - HOUR + 1 + at)}`
    : last == null ? "–" : words(last);
  const label = known.length ? `${title} of ${name}, last hour: last ${words(last)}, most ${words(most)}` : `${title} of ${name}: no samples`;
  return make("figure", { "data-key": key },
    make("figcaption", {}, title, make("b", {}, said)),
    make("div", { class: "plot", tabindex: 0, role: "img", "aria-label": label, "data-service": name },
      drawn("svg", { viewBox: "0 0 600 100", preserveAspectRatio: "none", "aria-hidden": "true" },
        [0, 150, 300, 450, 600].map((x) => line("frame", x, 0, x, 100)), line("frame", 0, 100, 600, 100),
        key === "errors" ? columns(values, top) : curve(values, top),
        at >= 0 && line("cursor", at * 10 + 5, 0, at * 10 + 5, 100)),
      known.length > 0 ? make("span", { class: "most" }, words(most)) : make("span", { class: "none" }, "no samples")),
    make("div", { class: "axis", "aria-hidden": "true" }, make("span", {}, "1 h ago"), make("span", {}, "now")));
}

const line = (kind, x1, y1, x2, y2) => drawn("line", { class: kind, x1, y1, x2, y2, "vector-effect": "non-scaling-stroke" });
const height = (value, top) => Math.round((97 - 82 * value / top) * 10) / 10;

function columns(values, top) {
  return values.map((value, at) => value ? drawn("rect", { class: "column", x: at * 10 + 1.5, width: 7, y: height(value, top),
    height: 100 - height(value, top) }) : null);
}

// One curve for each run of known minutes: a gap stays a gap.
function curve(values, top) {
  const runs = [];
  values.forEach((value, at) => {
    if (value === null) return;
    if (at === 0 || values[at - 1] === null) runs.push([]);
    runs.at(-1).push([at * 10 + 5, height(value, top)]);
  });
  return runs.flatMap((run) => {
    const points = run.length > 1 ? run : [[run[0][0] - 3, run[0][1]], [run[0][0] + 3, run[0][1]]];
    const path = points.map((point) => point.join(" ")).join("L");
    return [drawn("path", { class: "area", d: `M${points[0][0]} 100L${path}L${points.at(-1)[0]} 100Z` }),
      drawn("path", { class: "line", d: `M${path}`, "vector-effect": "non-scaling-stroke" })];
  });
}

function moveCursor(name, minute) {
  cursor = minute === null ? null : { service: name, minute };
  draw();
}

const lastMinute = () => Math.floor(shown.read_at / 60);
document.addEventListener("pointermove", (event) => {
  const place = event.target.closest?.(".plot");
  if (!shown || (!place && !cursor)) return;
  const box = place?.getBoundingClientRect();
  moveCursor(place?.dataset.service, place ? lastMinute() - HOUR + 1 + Math.min(HOUR - 1, Math.floor((event.clientX - box.left) / box.width * HOUR)) : null);
});
document.addEventListener("keydown", (event) => {
  const place = event.target.closest?.(".plot"), by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!place || !shown || (!by && event.key !== "Escape")) return;
  event.preventDefault();
  const first = lastMinute() - HOUR + 1, from = cursor?.service === place.dataset.service ? cursor.minute : lastMinute() + 1;
  moveCursor(place.dataset.service, by ? Math.min(lastMinute(), Math.max(first, from + by)) : null);
});
document.addEventListener("focusout", () => cursor && setTimeout(moveCursor, 0, null, null)); // not in the middle of a draw

// ---- nodes

function nodes(rows) {
  const heads = ["Node", "State", "Memory free", "GPU", "Disk free"];
  const cell = (label, content) => make("td", { "data-label": label }, content);
  return make("table", { "aria-label": "Nodes" },
    make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, rows.map((node) => make("tr", { "data-key": node.name },
      cell("Node", named(node.name, "release")),
      cell("State", state(!node.reachable ? "unreachable" : node.cordon ? "cordoned" : node.cordon_unknown ? "guard silent" : "reachable")),
      cell("Memory free", memory(node.memory)),
      cell("GPU", node.gpus.length ? node.gpus.map(gpu) : "–"),
      cell("Disk free", node.disk_free_gib === null ? "–" : `${figure(node.disk_free_gib)} GiB`)))));
}

function memory(row) {
  if (!row) return "–";
  const used = 1 - row.available_gib / row.total_gib;
  return [`${row.available_gib.toFixed(1)} of ${row.total_gib.toFixed(1)} GiB`,
    bar(used, `memory ${percent(used)} used`, used > 0.95 ? "high" : "")];
}

function gpu(row) {
  const parts = [[row.use, percent], [row.temperature_c, (value) => `${Math.round(value)} °C`], [row.power_w, (value) => `${Math.round(value)} W`],
    [row.clock_mhz, (value) => `${Math.round(value)} MHz`]].filter(([value]) => value !== null).map(([value, words]) => words(value));
  const own = row.memory_used_gib != null && row.memory_total_gib != null && `${row.memory_used_gib.toFixed(1)} of ${row.memory_total_gib.toFixed(1)} GiB used`;
  return make("div", {}, parts.length ? parts.map((part) => make("span", { class: "part" }, part)) : "–", own && [make("br"), own], row.use !== null && bar(row.use, `GPU ${percent(row.use)} busy`, ""));
}

function gateway(row) {
  return row && make("p", { class: "gateway" }, "gateway ", state(row.state), " on ", make("bdi", {}, row.node),
    (row.url || row.address) && make("span", { class: "faint mono" }, ` ${row.url || row.address}`));
}

// ---- the whole page

const at = (name) => document.getElementById(name);

function draw() {
  const { status, hour, phases, read_at, inventory, version } = shown, found = troubles(status);
  const parts = verdict(status, found), end = lastMinute();
  update(at("verdict"), parts.map(([words, color]) => make("span", { class: color }, words)));
  document.title = visible(`${parts.map(([words]) => words).join(", ")} – sparkops`);
  at("inventory").textContent = visible(`${version} · ${inventory} · ${plural(status.nodes.length, "node")}`);
  at("attention").hidden = found.length === 0;
  update(at("attention").querySelector("ul"), found.map(trouble));
  const ordered = [...status.services].sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state));
  update(at("services").querySelector("div"), ordered.length ? ordered.map((row) => service(row, phases, Object.hasOwn(hour, row.name) ? hour[row.name] : [], end))
    : [make("p", { class: "panel" }, "No service. The first one: ", make("code", {}, "sparkops up RECIPE"))]);
  update(at("nodes").querySelector("div"), [make("div", { class: "panel" }, gateway(status.gateway), nodes(status.nodes))]);
  fresh(read_at);
}

function fresh(read_at) {
  const old_s = Date.now() / 1000 - read_at, late = old_s > LATE_S;
  at("fresh").textContent = late ? `no new picture for ${age(old_s)}; this one was read at ${clock(read_at)}`
    : `read at ${clock(read_at)}, every ${shown.every_s} s`;
  at("fresh").className = late ? "late" : "";
}

function over(text) {
  at("ended").hidden = !text;
  if (at("ended").textContent !== text) at("ended").textContent = text;
  document.body.classList.toggle("over", Boolean(text));
}

const get = (path, headers = {}) => fetch(path, { headers: { Authorization: `Bearer ${TOKEN}`, ...headers }, cache: "no-store" });
const pause = (wait_ms) => new Promise((go) => setTimeout(go, wait_ms));
const seen = () => new Promise((go) => document.hidden ? document.addEventListener("visibilitychange", go, { once: true }) : go());

async function follow() {
  for (;;) {
    await seen(); // a page in the background lets no node be read
    let reply = null, next = null;
    try {
      reply = await get("/status.json", tag ? { "If-None-Match": tag } : {});
      next = reply.status === 200 ? await reply.json() : null;
    } catch {
      over(`sparkops ui has ended${shown ? `: this is the last picture, read at ${clock(shown.read_at)}` : ""}. `
        + "Run it again and open the address that it prints.");
      await pause(RETRY_MS);
      continue;
    }
    if (reply.status === 403) return over("Open the address that `sparkops ui` printed: it contains a token.");
    over("");
    if (next) {
      tag = reply.headers.get("ETag") || "";
      shown = next;
      draw();
    } else if (reply.status !== 304) await pause(RETRY_MS);
  }
}

async function listRecipes() {
  const reply = await get("/recipes.json").catch(() => null);
  if (!reply?.ok) return;
  at("recipe").replaceChildren(...(await reply.json()).map((name) => make("option", { value: name }, name)));
}

at("plan").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button"), output = at("planned"), name = at("recipe").value;
  button.disabled = true;
  output.hidden = false;
  output.textContent = `sparkops plan ${visible(name)} runs; for new inputs this takes a minute or more`;
  const reply = await get(`/plan?recipe=${encodeURIComponent(name)}`).catch(() => null);
  output.textContent = reply ? visible(await reply.text()) : "sparkops ui has ended.";
  button.disabled = false;
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
});
addEventListener("unhandledrejection", (event) => over(`The page failed: ${event.reason}. Reload it.`));
setInterval(() => shown && fresh(shown.read_at), 1000);
listRecipes();
follow();

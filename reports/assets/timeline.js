// The timeline of any window that the reader chooses. Without this script the page has the messages and tables.
(async () => {
  const chart = document.getElementById("chart"), block = document.getElementById("timeline-data");
  if (!chart || !block || !window.DecompressionStream) return;
  const data = await unpack(block.textContent).catch(() => null);
  if (!data) return;
  block.remove();

  const hatch = `<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="t-hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>`;
  const laneHeight = 26, gap = 6, dense = 80;
  const initial = { a: data.from, b: data.to, at: data.moment, lock: data.lock, find: "" };
  const view = { ...initial };
  const told = data.violations.find((v) => v.told);
  const ops = data.requests, crowd = data.lanes.length > 24 || Boolean(data.detail);
  const open = new Set(); // the locks that are unfolded
  const picker = document.getElementById("lanes");
  const names = new Set([...data.locks.map((l) => l.name), ...data.clients].map((s) => s.toLowerCase()));
  let most = 24, wanted = []; // how many rows are drawn, and what is looked for
  let width = 0, left = 0, right = 0, queued = false, saved = 0, rows = [], marked = -1;

  // ---- reading the block

  async function unpack(text) {
    const packed = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
    const header = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
    // The requests of all lanes are in one list of each kind: those of a lane lie from its lo to its hi.
    const requests = { ask: [], answer: [], from: [], to: [], reach: [], token: [], kind: [] };
    const { ask, answer, from, to, reach, token, kind } = requests;
    let i = 0;
    const lanes = header.lanes.map((lane, index) => {
      const of = header.locks[lane.lock], lo = i, list = lane.requests;
      let last = 0, lastToken = 0, most = -1; // until when anything that was asked for so far goes on
      for (let at = 0; at < list.length; i++) {
        ask[i] = last += list[at++];
        answer[i] = last + list[at++];
        from[i] = to[i] = token[i] = 0;
        if ((kind[i] = list[at++]) >= 3) {
          from[i] = answer[i] + list[at++];
          to[i] = list[at] ? from[i] + list[at] - 1 : Infinity;
          token[i] = lastToken += list[at + 1];
          at += 2;
        }
        reach[i] = most = Math.max(most, answer[i], to[i]);
      }
      const made = { ...lane, index, lock: of.name, of, name: header.clients[lane.client], lo, hi: i };
      (of.lanes ||= []).push(made);
      return made;
    });
    for (const r of header.resources) {
      r.times = []; r.kinds = [];
      for (let at = 0, last = 0; at < r.accesses.length; at += 2) { r.times.push(last += r.accesses[at]); r.kinds.push(r.accesses[at + 1]); }
    }
    return Object.assign(header, { lanes, requests });
  }

  // first is the first index with list[i] >= t.
  function first(list, t, low = 0, high = list.length) {
    while (low < high) {
      const mid = (low + high) >> 1;
      if (list[mid] < t) low = mid + 1; else high = mid;
    }
    return low;
  }

  // ---- words

  const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  const esc = (s) => String(s).replace(/[&<>"']/g, (c) => escapes[c]);
  const short = (s, n) => { const r = [...s]; return r.length > n ? r.slice(0, Math.max(1, n - 1)).join("") + "…" : s; };
  const wide = (s) => [...s].length * 6.6;
  const instant = (us) => (Math.floor(us / 1e3) / 1e3).toFixed(3) + " s";
  const seconds = (us) => String(Math.round(us) / 1e6);
  const thousands = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
  function span(us) {
    if (us < 1e3) return Math.round(us) + " µs";
    if (us < 1e4) return (Math.floor(us / 100) / 10).toFixed(1).replace(".0", "") + " ms";
    return us < 1e7 ? thousands(Math.floor(us / 1e3)) + " ms" : instant(us);
  }

  // ---- drawing

  const x = (t) => left + (Math.min(Math.max(t, view.a), view.b) - view.a) / (view.b - view.a) * (right - left);
  const n1 = (v) => Math.round(v * 10) / 10;
  const title = (s) => s ? `<title>${esc(s)}</title>` : "";
  const rect = (c, x, y, w, h, r, t) => `<rect class="${c}" x="${n1(x)}" y="${n1(y)}" width="${n1(Math.max(w, 0))}" height="${n1(h)}" rx="${r || 0}">${title(t)}</rect>`;
  const path = (c, d, t) => d ? `<path class="${c}" d="${d}">${title(t)}</path>` : "";
  const text = (c, x, y, s) => `<text class="${c}" x="${n1(x)}" y="${n1(y)}">${esc(s)}</text>`;
  const slash = (x, y, r) => `M${n1(x - r)} ${n1(y + r)}l${2 * r} ${-2 * r}`;
  const cross = (x, y, r) => `M${n1(x - r)} ${n1(y - r)}l${2 * r} ${2 * r}m${-2 * r} 0l${2 * r} ${-2 * r}`;
  const ring = (x, y, r, t) => `<circle class="t-info" cx="${n1(x)}" cy="${n1(y)}" r="${r}">${title(t)}</circle>`;
  const meets = (from, to) => from <= view.b && to >= view.a;
  const sparse = () => data.detail && (view.a < data.detail[0] || view.b > data.detail[1]);

  function label(name, y, h) {
    return `<text class="t-label end" x="${left - 8}" y="${n1(y + h / 2 + 4)}">${esc(short(name, Math.floor((left - 12) / 7)))}${title(name)}</text>`;
  }

  const inView = (lane) => [first(ops.reach, view.a, lane.lo, lane.hi), first(ops.ask, view.b + 1, lane.lo, lane.hi)];
  const acts = (lane) => { const [low, high] = inView(lane); return low < high; };

  // drawLane draws one client at one lock; many is the same for all lanes of a view, so
  // that they can be compared.
  function drawLane(lane, y, many) {
    const [low, high] = inView(lane), says = {}, shares = many ? drawDense([lane], y, says) : "";
    let out = label(lane.name, y, laneHeight) + rect("t-lane", left, y, right - left, laneHeight, 0, shares && `${lane.name} at ${lane.lock}: ${says.share} % held; ${counts(says)}`);
    if (many) out += shares;
    else for (let i = low; i < high; i++) out += drawOne(lane, y, i);
    for (const [a, b] of lane.beyond || []) {
      if (meets(a, b)) out += rect("t-beyond", x(a), y + 3, Math.max(x(b) - x(a), 1), laneHeight - 6, 3, "held beyond its lease, as a later answer shows");
    }
    let extended = "";
    const extend = (lane.extend || []).filter((t) => meets(t, t));
    if (extend.length <= 60) for (const t of extend) extended += `M${n1(x(t))} ${y + 2}v${laneHeight - 4}`;
    out += path("t-extend", extended);
    for (const [a, b] of lane.late || []) {
      if (meets(a, b)) out += rect("t-late", x(a), y + 2, Math.max(x(b) - x(a), 2), laneHeight - 4, 0, `used until ${instant(b)}, ${span(b - a)} after it had ceased to hold`);
    }
    return out;
  }

  const counts = (says) => `${thousands(says.granted)} granted, ${thousands(says.refused)} refused, ${thousands(says.unknown)} without a known outcome`;

  // drawLock draws a lock with all its clients in one row, which unfolds.
  function drawLock(lock, lanes, y, open) {
    const bad = data.violations.filter((v) => v.lock === lock.name && meets(v.from, v.to)).length;
    const words = `${open ? "▾" : "▸"} ${lock.name}`, says = {};
    const row = drawDense(lanes, y, says);
    const about = [sparse() ? "" : `${says.share} % held`, sparse() ? "" : lanes.length + (lanes.length === 1 ? " client" : " clients")].filter(Boolean).join(" · ");
    const full = `${lock.name}: ${[about, sparse() ? "" : counts(says), bad ? `${thousands(bad)} in a violation` : ""].filter(Boolean).join("; ")}`;
    return `<g class="t-fold" data-fold="${esc(lock.name)}" tabindex="0" role="button" aria-expanded="${open}" aria-label="${esc(full)}">${rect("t-none", 0, y, left, laneHeight)}` +
      `<text class="t-label end${bad ? " t-bad-text" : ""}" x="${left - 8}" y="${n1(y + (about ? 11 : 17))}">${esc(short(words, Math.floor((left - 12) / 7)))}</text>${about ? text("t-small end", left - 8, y + 23, short(about, Math.floor((left - 8) / 6))) : ""}${title(full)}</g>` +
      rect("t-lane", left, y, right - left, laneHeight) + row;
  }

  function drawOne(lane, y, i) {
    const kind = ops.kind[i], ask = ops.ask[i], answer = ops.answer[i], mid = y + laneHeight / 2;
    let out = "";
    if (meets(ask, answer)) {
      const said = `${lane.name} asked for ${lane.lock} at ${instant(ask)}: ${["refused", "no known outcome"][kind] || "granted"} after ${span(answer - ask)}`;
      if (x(answer) - x(ask) > 1.5) out += rect("t-wait", x(ask), mid - 3, x(answer) - x(ask), 6, 0, said);
      if (answer <= view.b && kind === 0) out += path("t-fail", slash(x(answer), mid, 3.5), said);
      if (answer <= view.b && kind === 1) out += ring(x(answer), mid, 3.5, said);
    }
    if (kind < 3 || !meets(ops.from[i], ops.to[i])) return out;
    const from = x(ops.from[i]), to = x(ops.to[i]), node = data.granters[kind - 4];
    const until = ops.to[i] === Infinity ? "no end" : instant(ops.to[i]);
    let words = node ? "granted by " + node : "";
    if (ops.token[i]) words += " token " + ops.token[i];
    out += rect("t-hold", from, y + 2, Math.max(to - from, 1), laneHeight - 4, 3,
      `${lane.name} holds ${lane.lock} from ${instant(ops.from[i])} to ${until}${words && ", " + words}`);
    let after = ops.to[i] > view.b && to - from > 120 ? (until === "no end" ? "no end →" : `until ${until} →`) : "";
    if (after) out += text("t-in end", to - 8, mid + 4, after);
    if (words && wide(words) + wide(after) + 26 < to - from) out += text("t-in", from + 8, mid + 4, words.trim());
    return out;
  }

  // drawDense draws how much of each pixel the holds of lanes cover, with what was
  // refused, what has no known outcome, and the waits that are long enough to be seen:
  // the more clients wait, the higher. It counts what it draws.
  function drawDense(lanes, y, says = {}) {
    const columns = Math.ceil(right - left), scale = (right - left) / (view.b - view.a), mid = y + laneHeight / 2;
    const covered = new Float32Array(columns + 1), waiting = new Int32Array(columns + 2), refused = new Uint8Array(columns + 1), unknown = new Uint8Array(columns + 1);
    Object.assign(says, { granted: 0, refused: 0, unknown: 0, share: 0 });
    for (const lane of lanes) {
      const [low, high] = inView(lane);
      for (let i = low; i < high; i++) {
        const kind = ops.kind[i], answer = ops.answer[i], a = Math.max((ops.ask[i] - view.a) * scale, 0), b = Math.min((answer - view.a) * scale, columns);
        if (b - a > 1.5) { waiting[a | 0]++; waiting[(b | 0) + 1]--; }
        if (answer >= view.a && answer <= view.b) {
          if (kind === 0) { refused[b | 0] = 1; says.refused++; } else if (kind === 1) { unknown[b | 0] = 1; says.unknown++; } else says.granted++;
        }
        if (kind < 3) continue;
        const from = Math.max((ops.from[i] - view.a) * scale, 0), to = Math.min((ops.to[i] - view.a) * scale, columns);
        for (let c = from | 0; c < to; c++) covered[c] += Math.min(to, c + 1) - Math.max(from, c);
      }
    }
    let waits = "", begin = 0, n = 0, was = 0;
    const height = (n) => n > 3 ? 14 : n > 1 ? 10 : n ? 6 : 0;
    for (let c = 0; c <= columns; c++) {
      const h = c < columns ? height(n += waiting[c]) : 0;
      if (h === was) continue;
      if (was) waits += `M${n1(left + begin)} ${n1(mid - was / 2)}h${c - begin}v${was}h${begin - c}z`;
      begin = c; was = h;
    }
    const marks = (at, draw) => { let out = "", last = -9; for (let c = 0; c <= columns; c++) if (at[c] && c - last > 6) { out += draw(left + c); last = c; } return out; };
    for (let c = 0; c < columns; c++) says.share += Math.min(1, covered[c]);
    says.share = Math.round(says.share / columns * 100);
    return path("t-wait", waits) + levels(covered, columns, (c) => left + c, y) + path("t-fail", marks(refused, (at) => slash(at, mid, 3))) + marks(unknown, (at) => ring(at, mid, 3, "no known outcome"));
  }

  function levels(covered, columns, at, y) {
    const paths = ["", "", "", "", ""], level = (c) => Math.min(4, Math.ceil(covered[c] * 4 - 0.001));
    let begin = 0;
    for (let c = 1; c <= columns; c++) {
      if (c < columns && level(c) === level(begin)) continue;
      const a = n1(at(begin)), w = n1(Math.min(at(c), right) - at(begin));
      if (w > 0) paths[level(begin)] += `M${a} ${n1(y + 2)}h${w}v${laneHeight - 4}h${-w}z`;
      begin = c;
    }
    return paths.slice(1).map((d, i) => path(`t-hold t-d${i + 1}`, d)).join("");
  }

  function drawResource(r, y) {
    let out = label(r.name, y, laneHeight) + rect("t-lane", left, y, right - left, laneHeight);
    const low = first(r.times, view.a), high = first(r.times, view.b + 1), mid = y + laneHeight / 2;
    const strokes = ["", "", "", ""], last = [-9, -9, -9, -9];
    for (let i = low; i < high; i++) {
      const at = x(r.times[i]), k = r.kinds[i];
      if (at - last[k] < (k === 0 ? 1 : 4)) continue;
      last[k] = at;
      if (k === 1) strokes[1] += slash(at, mid, 3.5);
      else if (k === 2) strokes[2] += ring(at, mid, 3.5, "access without a known outcome at " + instant(r.times[i]));
      else strokes[k] += `M${n1(at)} ${n1(y + 4)}v${laneHeight - 8}` + (k === 3 ? `m-4 0h8m0 ${8 - laneHeight}h-8` : "");
    }
    out += path(high - low > dense ? "t-access t-many" : "t-access", strokes[0]) + path("t-fail", strokes[1]) + strokes[2] + path("t-access t-bad", strokes[3]);
    if (high - low > dense || !r.labels) return out;
    let room = left;
    for (const l of r.labels.filter((l) => meets(l.at, l.at))) {
      const at = x(l.at), w = wide(l.text) + 10, i = first(r.times, l.at + 1), next = i < high ? x(r.times[i]) : right;
      const c = l.bad ? "t-small t-bad-text" : "t-small";
      if (at + w < next) { out += text(c, at + 5, mid + 4, l.text); room = at + w; } else if (at - w > room) out += text(c + " end", at - 5, mid + 4, l.text);
      room = Math.max(room, at);
    }
    return out;
  }

  // looks are the roles that look like another.
  const looks = { leader: "master", follower: "replica", member: "replica" };

  function drawServer(s, y, h) {
    let out = label(s.name, y, h);
    for (const p of s.life) {
      if (!meets(p.from, p.to)) continue;
      const a = x(p.from), b = p.to >= data.end ? right : x(p.to);
      const known = { master: "t-master", replica: "t-replica" }[looks[p.state] || p.state];
      out += rect(known || "t-down", a, y + (known ? 0 : 0.5), Math.max(b - a, 1), known ? h : h - 1, 2, `${s.name}: ${p.state} from ${instant(p.from)} to ${instant(p.to)}`);
      const long = p.changed && p.from >= view.a ? (p.state === "master" ? "promoted to master at " : p.state === "leader" ? "became the leader at " : `became a ${p.state} at `) + instant(p.from) : p.state;
      const words = [long, p.state].find((w) => wide(w) + 14 < b - a);
      if (words) out += text(known === "t-master" ? "t-on-master" : "t-small", a + 7, y + h / 2 + 4, words);
    }
    return out;
  }

  const faultWords = (f) => f.name + (f.ok ? "" : " – no effect");

  // faultRows gives each fault a row in which its name has room on the whole run, and so at
  // every zoom. Where there are too many it shares one, and has its number for a name.
  function faultRows(faults) {
    const free = [], most = width < 620 ? 14 : 10, rows = [], at = (t) => left + Math.min(t / data.end, 1) * (right - left);
    let over = 0;
    for (const f of faults) {
      const a = at(f.from), b = Math.max(at(f.to), a + 3), w = wide(faultWords(f)) + 14;
      const [begin, end] = b - a >= w ? [a, b] : b + w <= right + 10 ? [a, b + w] : [a - w, b];
      let row = free.findIndex((x) => x <= begin);
      if (row < 0 && free.length < most) row = free.length;
      f.named = row >= 0;
      if (row < 0) row = free.findIndex((x) => x <= a);
      if (row < 0) { over++; continue; }
      free[row] = f.named ? end : b + 30;
      (rows[row] ||= []).push(f);
    }
    rows.left = over;
    return rows;
  }

  function drawFaults(row, y, h) {
    let out = "", free = left;
    const shown = row.filter((f) => meets(f.from, f.to));
    shown.forEach((f, i) => {
      const a = x(f.from), b = Math.max(x(f.to), a + 3), next = i + 1 < shown.length ? x(shown[i + 1].from) : right + 10;
      out += rect(f.ok ? "t-fault" : "t-missed", a, y, b - a, h, 2, f.title);
      const fits = (w) => b - a >= w ? ["t-small", a + 7, b] : b + w <= next ? ["t-small", b + 5, b + w] : a - w >= free ? ["t-small end", a - 5, b] : null;
      const number = "#" + (data.faults.indexOf(f) + 1);
      const words = [faultWords(f), ...(f.named && b - a > 70 ? [short(faultWords(f), Math.floor((b - a - 10) / 6.2))] : []), number].find((s) => fits(wide(s) + 14));
      const place = words && fits(wide(words) + 14);
      if (place) out += text(place[0], place[1], y + h / 2 + 4, words);
      free = Math.max(free, b, place ? place[2] : 0);
    });
    return out;
  }

  // drawKeys draws whose key of a lock a server was seen to have, from the first to the last look that found it.
  function drawKeys(k, y, h) {
    let out = label(k.server, y, h) + rect("t-lane", left, y, right - left, h), none = "";
    for (const [i, s] of k.spans.entries()) {
      if (!meets(s.from, s.to)) continue;
      const a = x(s.from), b = Math.max(x(s.to), a + 3), next = i + 1 < k.spans.length ? x(k.spans[i + 1].from) : right;
      out += rect("t-key", a, y + 1, b - a, h - 2, 2, `${k.server} had the key of ${s.name}, as looks from ${instant(s.from)} to ${instant(s.to)} found`);
      const words = ["key of " + s.name, s.name].find((w) => wide(w) + 14 < next - a);
      if (words) out += text("t-small", a + 7, y + h / 2 + 4, words);
    }
    for (const t of k.empty) if (meets(t, t)) none += cross(x(t), y + h / 2, 2.5);
    return out + path("t-look", none, `${k.server} had no holder of ${k.lock}`);
  }

  // framed are the frames around lanes that stand beside each other: none of them covers a
  // lane that is not concerned.
  function framed(ys) {
    const parts = [];
    for (const y of [...new Set(ys)].sort((a, b) => a - b)) {
      const last = parts.at(-1);
      if (last && y - 3 <= last[1] + gap) last[1] = y + laneHeight + 3;
      else parts.push([y - 3, y + laneHeight + 3]);
    }
    return parts;
  }

  function drawViolations(tops) {
    let out = "", flagged = null;
    const clusters = []; // in order of time: those without room of their own share a mark
    for (const v of data.violations) {
      if (!meets(v.from, v.to) || (view.lock && v.lock && v.lock !== view.lock)) continue;
      const ys = v.lanes.map((i) => tops.get(data.lanes[i])).filter((y) => y !== undefined);
      const a = x(v.from), b = Math.max(x(v.to), a + 3);
      if (v.told || (!flagged && b - a > 30)) { if (!flagged || v.told) flagged = { v, a, ys }; }
      if (ys.length && (v.told || b - a > 12)) {
        const parts = framed(ys);
        out += path("t-violation", parts.map(([top, bottom]) => `M${n1(a)} ${n1(top)}h${n1(b - a)}V${n1(bottom)}h${n1(a - b)}z`).join(""), v.title);
        out += path("t-flag-pole", parts.slice(1).map(([top], i) => `M${n1(a)} ${n1(parts[i][1])}V${n1(top)}`).join(""));
      } else if (v.from >= view.a) {
        const last = clusters.at(-1);
        if (last && a < last.a + 9 + (last.of.length > 1 ? 5 + wide(thousands(last.of.length)) : 0)) last.of.push(v);
        else clusters.push({ a, of: [v] });
      }
    }
    for (const { a, of } of clusters) {
      const v = of[0], more = of.length > 1;
      const words = more ? `${thousands(of.length)} violations from ${instant(v.from)} to ${instant(of.at(-1).from)}, the first: ${v.title}` : `${v.words} at ${instant(v.from)}: ${v.title}`;
      out += `<g class="t-hit">${rect("t-none", a - 8, 28, 16, 20, 0)}${path("t-bad-mark", cross(a, 38, 4))}${more ? text("t-small t-bad-text", a + 7, 42, thousands(of.length)) : ""}${title(words)}</g>`;
    }
    if (flagged) {
      const words = "✗ " + flagged.v.words, w = wide(words) * 1.1 + 14, at = Math.min(Math.max(flagged.a, left), right - w);
      if (flagged.ys.length) out += path("t-flag-pole", `M${n1(flagged.a)} 27V${n1(Math.min(...flagged.ys) - 3)}`);
      out += rect("t-flag", at, 6, w, 21, 3, flagged.v.title) + text("t-flag-text", at + 7, 21, words);
    }
    return out;
  }

  function drawAxis(top, bottom) {
    let step = 1, grid = "", out = path("t-axis", `M${left} ${n1(bottom)}H${n1(right)}`);
    const rough = (view.b - view.a) / Math.max(3, Math.floor((right - left) / 95)), power = 10 ** Math.floor(Math.log10(rough));
    step = Math.max(1, [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999));
    const decimals = Math.max(0, Math.ceil(6 - Math.log10(step) - 0.001));
    for (let t = Math.ceil(view.a / step) * step; t <= view.b; t += step) {
      grid += `M${n1(x(t))} ${top}V${n1(bottom)}`;
      const end = x(t) + 24 > width;
      out += path("t-axis", `M${n1(x(t))} ${n1(bottom)}v4`) + text(end ? "t-tick end" : "t-tick", end ? width - 2 : x(t), bottom + 16, (t / 1e6).toFixed(decimals) + " s");
    }
    return path("t-grid", grid) + out;
  }

  function draw() {
    queued = false;
    if (drag && !drag.moved) return; // else what is pressed would be gone, and the click lost; its end draws
    width = Math.max(chart.clientWidth, 240);
    left = width < 620 ? 84 : 124;
    if (right !== width - 14) { right = width - 14; rows = faultRows(data.faults); }
    let y = data.violations.length > 1 ? 52 : data.violations.length ? 34 : 8, body = "", lock = null; // the flag, and below it the marks of the others
    const tops = new Map(), top = y - 8;
    const heading = (s) => { body += text("t-group", 4, y + 11, short(s, Math.floor(width / 7))); y += 18; };
    const group = () => { if (body) y += 8; };
    const note = (s) => { body += text("t-note", left, y + 10, s); y += 18; };
    const more = (s) => { body += `<g class="t-fold" data-fold="" tabindex="0" role="button">${rect("t-none", left, y, right - left, 16)}${text("t-note", left, y + 10, s)}</g>`; y += 18; };
    const found = data.lanes.filter(chosen), locks = [...new Set(found.map((lane) => lane.of))];
    const bad = new Set(data.violations.filter((v) => meets(v.from, v.to)).flatMap((v) => v.lanes.map((i) => data.lanes[i])));
    const acting = crowd ? found.filter((lane) => bad.has(lane) || acts(lane)) : found;
    const worst = (list) => [...list.filter((lane) => bad.has(lane)), ...list.filter((lane) => !bad.has(lane))];
    let shown = locks;
    if (!crowd || acting.length <= most || locks.length === 1) {
      const lanes = crowd ? worst(acting).slice(0, most) : found;
      if (crowd) lanes.sort((a, b) => a.index - b.index);
      const many = lanes.some((lane) => { const [low, high] = inView(lane); return high - low > dense; });
      for (const lane of lanes) {
        if (lane.lock !== lock) { group(); heading(/^lock/i.test(lane.lock) ? lane.lock : "lock " + lane.lock); lock = lane.lock; }
        tops.set(lane, y);
        body += drawLane(lane, y, many);
        y += laneHeight + gap;
      }
      if (acting.length > lanes.length) more(`${thousands(acting.length - lanes.length)} more clients acted here: show more, or filter them above`);
      if (!lanes.length) note(view.find ? "no lock or client of that name" + (found.length ? " acted here" : "") : crowd ? "no client acted here" : "no client used a lock");
      shown = [...new Set(lanes.map((lane) => lane.of))];
    } else {
      const of = new Map(locks.map((l) => [l, []]));
      for (const lane of acting) of.get(lane.of).push(lane);
      const marked = new Set([...bad].map((lane) => lane.of));
      const active = locks.filter((l) => of.get(l).length);
      shown = [...active.filter((l) => marked.has(l)), ...active.filter((l) => !marked.has(l))].slice(0, most);
      heading("locks");
      for (const l of shown) {
        const lanes = of.get(l);
        for (const lane of lanes) tops.set(lane, y);
        body += drawLock(l, lanes, y, open.has(l.name));
        y += laneHeight + gap;
        if (!open.has(l.name)) continue;
        const some = worst(lanes).slice(0, most), many = some.some((lane) => { const [low, high] = inView(lane); return high - low > dense; });
        for (const lane of some) { tops.set(lane, y); body += drawLane(lane, y, many); y += laneHeight + gap; }
        if (lanes.length > some.length) more(`${thousands(lanes.length - some.length)} more clients of ${l.name} acted here: show more, or filter them above`);
      }
      if (active.length > shown.length) more(`${thousands(active.length - shown.length)} more locks were used here: show more, or filter them above`);
      if (!active.length) note("no lock or client of that name acted here");
    }
    const used = data.resources.filter((r) => crowd ? r.locks.some((i) => shown.includes(data.locks[i])) : !view.lock || r.locks.some((i) => data.locks[i].name === view.lock));
    const harmed = (r) => r.locks.some((i) => data.violations.some((v) => v.lock === data.locks[i].name)), resources = [...used.filter(harmed), ...used.filter((r) => !harmed(r))].slice(0, 8);
    if (resources.length) { group(); heading("protected resource"); }
    for (const r of resources) { body += drawResource(r, y); y += laneHeight + gap; }
    if (used.length > resources.length) note(`${thousands(used.length - resources.length)} more resources: choose their locks above`);
    const keys = (data.keys || []).filter((k) => (view.lock ? k.lock === view.lock : k.lock === data.keys[0].lock) && (k.spans.some((s) => meets(s.from, s.to)) || k.empty.some((t) => meets(t, t))));
    if (keys.length) { group(); heading("keys of " + keys[0].lock); }
    for (const k of keys) { body += drawKeys(k, y, 18); y += 22; }
    if (data.servers.length) { group(); heading("servers"); }
    for (const s of data.servers) { body += drawServer(s, y, 18); y += 22; }
    if (rows.length) { group(); heading("faults"); }
    for (const row of rows) if (row.some((f) => meets(f.from, f.to))) { body += drawFaults(row, y, 18); y += 22; }
    if (rows.left) note(`${rows.left} more faults are in the table below`);
    const axis = drawAxis(top, y + 4);
    let moment = "";
    if (view.at >= view.a && view.at <= view.b) {
      moment = path("t-moment", `M${n1(x(view.at))} ${top}V${n1(y + 4)}`) + path("t-moment-foot", `M${n1(x(view.at))} ${n1(y + 4)}l-5 9h10z`);
    }
    y += 28;
    svg.setAttribute("viewBox", `0 0 ${width} ${n1(y)}`);
    svg.setAttribute("height", n1(y));
    const focus = document.activeElement?.closest?.("[data-fold]")?.dataset.fold;
    svg.innerHTML = hatch + axis + body + drawViolations(tops) + moment + `<rect class="t-select" visibility="hidden" y="${top}" height="${n1(y - 20 - top)}"/><path class="cross-hair" visibility="hidden"/><text class="t-small" visibility="hidden" y="${n1(y - 22)}"></text>`;
    for (const entry of document.querySelectorAll("#legend [data-for]")) entry.hidden = !svg.querySelector(entry.dataset.for);
    marked = -1;
    svg.removeAttribute("aria-activedescendant");
    for (const node of document.querySelectorAll("[data-mark]")) node.textContent = "";
    if (focus !== undefined) svg.querySelector(`[data-fold="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    say();
  }

  // chosen reports whether a lane is of the lock that is chosen, and has the words that
  // are looked for: a whole name finds only what has it, a part all names with that part.
  function chosen(lane) {
    if (view.lock && lane.lock !== view.lock) return false;
    return wanted.every(({ word, whole }) => (whole ? [lane.lock, lane.name].some((s) => s.toLowerCase() === word) : `${lane.lock} ${lane.name}`.toLowerCase().includes(word)));
  }

  function look(words) {
    view.find = words.trim();
    most = 24;
    wanted = view.find.toLowerCase().split(/\s+/).filter(Boolean).map((word) => ({ word, whole: names.has(word) }));
  }

  function fold(name) {
    if (!name) most *= 2;
    else if (!open.delete(name)) open.add(name);
    queue();
  }

  function queue() {
    if (!queued) { queued = true; requestAnimationFrame(draw); }
  }

  // ---- the moment, the address and the words around the chart

  function say() {
    const whole = view.a <= 0 && view.b >= data.end;
    for (const node of document.querySelectorAll("[data-window]")) node.textContent = whole ? "the whole run" : `${instant(view.a)} to ${instant(view.b)}`;
    if (picker !== document.activeElement) picker.value = view.lock || view.find;
    for (const node of document.querySelectorAll("[data-coarse]")) node.hidden = !sparse();
    clearTimeout(saved);
    saved = setTimeout(save, 150);
  }

  let known = location.hash; // what the view came from, or was saved as

  function save() {
    if (location.hash !== known) return; // a link was followed, and is yet to be shown
    const same = Object.keys(initial).every((k) => initial[k] === view[k]);
    const hash = same ? "" : `#t=${seconds(view.a)}-${seconds(view.b)}&at=${seconds(view.at)}${view.lock ? "&lock=" + encodeURIComponent(view.lock) : ""}${view.find ? "&find=" + encodeURIComponent(view.find) : ""}`;
    if (hash !== location.hash && (hash || location.hash.startsWith("#t="))) {
      try { history.replaceState(null, "", hash || location.pathname + location.search); } catch { /* the address stays as it was */ }
      known = location.hash;
    }
  }

  // load takes the view from the address: #t=14.2-15.1, #t=14.2, with &at= and &lock=.
  function load() {
    const hash = new URLSearchParams(location.hash.slice(1)), us = (s) => Math.round(Number(s) * 1e6);
    if (!hash.has("t") && !hash.has("at")) return false;
    const at = hash.has("at") ? us(hash.get("at")) : NaN;
    if (hash.has("t")) {
      const [from, to] = hash.get("t").split("-").map(us);
      if (Number.isFinite(from) && Number.isFinite(to)) show(from, to);
      else if (Number.isFinite(from)) { choose(from); show(from - data.end / 20, from + data.end / 20); }
      view.lock = hash.get("lock") || "";
      look(hash.get("find") || "");
    }
    if (Number.isFinite(at)) choose(at);
    return true;
  }

  function show(a, b) {
    const length = Math.min(Math.max(b - a, 20), data.end);
    a = Math.min(Math.max(a + (b - a - length) / 2, 0), data.end - length);
    Object.assign(view, { a, b: a + length });
    queue();
  }

  function choose(at) {
    view.at = Math.min(Math.max(at, 0), data.end);
    const length = view.b - view.a;
    if (view.at < view.a || view.at > view.b) show(view.at - length / 2, view.at + length / 2);
    queue();
  }

  const zoom = (factor, t = (view.a + view.b) / 2) => show(t - (t - view.a) * factor, t + (view.b - t) * factor);
  const pan = (share) => { const by = (view.b - view.a) * share; show(view.a + by, view.b + by); };
  // The table has a row for each violation, in the same order.
  const lines = [...document.querySelectorAll("#violations tbody tr")];
  let current = data.violations.indexOf(told);
  // step goes to the next violation whose row the filter shows, or to the one before.
  function step(by) {
    let i = current + by;
    while (i >= 0 && i < data.violations.length && lines[i]?.hidden) i += by;
    const v = data.violations[i];
    if (!v) return;
    current = i;
    const margin = Math.max((v.to - v.from) / 2, 20000);
    view.lock = v.lock;
    look("");
    view.at = v.from;
    show(v.from - margin, v.to + margin);
    choose(v.from);
    count();
  }
  function count() {
    const left = lines.filter((line) => !line.hidden);
    for (const [i, line] of lines.entries()) line.classList.toggle("now", i === current);
    const line = lines[current];
    if (line) { const box = line.closest(".all"); if (line.offsetTop < box.scrollTop + 40 || line.offsetTop > box.scrollTop + box.clientHeight - 40) box.scrollTop = line.offsetTop - box.clientHeight / 2; }
    for (const node of document.querySelectorAll("[data-count]")) node.textContent = `${left.includes(line) ? thousands(left.indexOf(line) + 1) + " of " : ""}${thousands(left.length)}`;
  }
  document.getElementById("filter")?.addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const line of lines) { const text = line.textContent.toLowerCase(); line.hidden = !words.every((w) => text.includes(w)); }
    count();
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    if (event.key === "n" || event.key === "p") step(event.key === "n" ? 1 : -1);
  });
  const actions = {
    before() { step(-1); },
    after() { step(1); },
    whole() { view.lock = ""; look(""); show(0, data.end); },
    violation() {
      if (!told) return;
      look(""); view.lock = initial.lock; view.at = initial.at; show(initial.a, initial.b);
      current = data.violations.indexOf(told); count();
    },
    in() { zoom(0.5, view.at > view.a && view.at < view.b ? view.at : undefined); },
    out() { zoom(2); },
    left() { pan(-0.25); },
    right() { pan(0.25); },
    next() { walk(1); },
    previous() { walk(-1); },
  };
  // walk goes through what is drawn, lane by lane and each in order of time, and says what it
  // stands on: all that a pointer could rest on.
  function walk(by) {
    const all = [...svg.querySelectorAll("title")].map((node) => node.parentNode).filter((node) => !node.matches("text"));
    if (!all.length) return;
    svg.querySelector("#mark")?.removeAttribute("id");
    svg.querySelector(".t-now")?.classList.remove("t-now");
    marked = marked < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(marked + by, 0), all.length - 1);
    const node = all[marked], words = [...node.children].find((child) => child.nodeName === "title").textContent;
    node.classList.add("t-now");
    node.id = "mark";
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", words);
    svg.setAttribute("aria-activedescendant", "mark");
    for (const out of document.querySelectorAll("[data-mark]")) out.textContent = words;
  }
  const keys = { ArrowDown: "next", ArrowUp: "previous", ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", Home: "whole", "0": "whole", v: "violation" };

  const svg = document.createElementNS(document.querySelector("svg").namespaceURI, "svg");
  svg.setAttribute("class", "figure live");
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("role", "application");
  svg.setAttribute("aria-label", "Timeline. Left and right move, up and down walk through what is drawn and say it, plus and minus zoom, Home shows the whole run.");
  chart.append(svg);
  svg.addEventListener("click", (event) => { const row = event.target.closest("[data-fold]"); if (row) fold(row.dataset.fold); });
  svg.addEventListener("keydown", (event) => {
    const row = event.target.closest("[data-fold]");
    if (row && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); fold(row.dataset.fold); return; }
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[action]();
  });
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => actions[button.dataset.do]());

  const timeAt = (event) => view.a + (Math.min(Math.max(event.clientX - svg.getBoundingClientRect().left, left), right) - left) / (right - left) * (view.b - view.a);
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== svg) return; // the page scrolls
    if (event.deltaY > 0 && view.a <= 0 && view.b >= data.end) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width);
    else zoom(Math.exp(event.deltaY / 300), timeAt(event));
  }, { passive: false });

  // A drag chooses a window, with shift it moves the one there is; a click
  // chooses a moment.
  let drag = null;
  svg.addEventListener("pointerdown", (event) => {
    if (event.button || event.target.closest("[data-fold]")) return;
    drag = { x: event.clientX, t: timeAt(event), a: view.a, b: view.b, move: event.shiftKey, moved: false };
    try { svg.setPointerCapture(event.pointerId); } catch { /* it is gone already */ }
  });
  svg.addEventListener("pointermove", (event) => {
    const at = timeAt(event), select = svg.querySelector(".t-select"), hair = svg.querySelector(".cross-hair"), words = hair?.nextElementSibling;
    if (!hair) return;
    if (drag && Math.abs(event.clientX - drag.x) > 5) drag.moved = true;
    if (drag?.moved && drag.move) {
      const by = (event.clientX - drag.x) / (right - left) * (drag.b - drag.a);
      show(drag.a - by, drag.b - by);
      return;
    }
    if (drag?.moved) {
      select.setAttribute("visibility", "visible");
      select.setAttribute("x", Math.min(x(at), x(drag.t)));
      select.setAttribute("width", Math.abs(x(at) - x(drag.t)));
    }
    hair.setAttribute("visibility", "visible");
    hair.setAttribute("d", `M${n1(x(at))} 0V${svg.getAttribute("height")}`);
    words.setAttribute("visibility", "visible");
    const late = x(at) > (left + right) / 2;
    words.setAttribute("x", x(at) + (late ? -5 : 5));
    words.style.textAnchor = late ? "end" : "start";
    words.textContent = (at / 1e6).toFixed(4) + " s";
  });
  svg.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { t, moved, move } = drag, at = timeAt(event);
    drag = null;
    if (moved && !move) show(Math.min(t, at), Math.max(t, at));
    else if (!moved) choose(Math.round(at));
  });
  svg.addEventListener("pointercancel", () => { drag = null; queue(); });
  svg.addEventListener("pointerleave", () => { for (const node of svg.querySelectorAll(".cross-hair,.cross-hair + text")) node.setAttribute("visibility", "hidden"); });
  svg.addEventListener("dblclick", (event) => { if (!event.target.closest("[data-fold]")) actions.whole(); });

  // The picker: a name of a lock or client, or a part of one.
    if (data.locks.length + data.clients.length > 3) {
    const list = document.createElement("datalist");
    list.id = "names";
    for (const name of [...data.locks.map((l) => l.name), ...data.clients].slice(0, 5000)) list.append(new Option(name));
    picker.after(list);
    picker.setAttribute("list", list.id);
    picker.hidden = false;
    picker.addEventListener("input", () => { view.lock = ""; look(picker.value); queue(); });
  }

  document.documentElement.classList.add("has-chart");
  count();
  const come = () => { known = location.hash; if (load()) { queue(); document.getElementById("timeline").scrollIntoView(); } };
  addEventListener("hashchange", come);
  new ResizeObserver(() => { if (chart.clientWidth !== width) queue(); }).observe(chart);
  draw();
  come();
})();

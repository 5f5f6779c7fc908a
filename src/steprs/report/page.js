"use strict";

// Theme: the system's, until the button says otherwise for this visit.
(() => {
  const button = document.querySelector(".theme");
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  label();
})();

// A legend's entry lights up its arm in the figure's panels; pressed, it stays so.
for (const figure of document.querySelectorAll("figure.drawn")) {
  const entries = [...figure.querySelectorAll(".legend button")];
  const light = (key) => {
    figure.classList.toggle("dimmed", Boolean(key));
    for (const mark of figure.querySelectorAll(".arm")) mark.classList.toggle("lit", mark.classList.contains(key));
  };
  const pressed = () => entries.find((entry) => entry.getAttribute("aria-pressed") === "true");
  for (const entry of entries) {
    entry.addEventListener("mouseenter", () => light(entry.dataset.arm));
    entry.addEventListener("mouseleave", () => light(pressed()?.dataset.arm));
    entry.addEventListener("click", () => {
      const now = entry.getAttribute("aria-pressed") !== "true";
      for (const other of entries) other.setAttribute("aria-pressed", String(now && other === entry));
      light(now ? entry.dataset.arm : undefined);
    });
  }
}

// The table of contents marks where the reader is.
(() => {
  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((changes) => {
    for (const change of changes) {
      if (!change.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(change.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "0px 0px -75% 0px" });
  for (const heading of document.querySelectorAll("main :is(h2, h3)[id]")) seen.observe(heading);
  // On a narrow screen the contents would push the report below the fold.
  if (matchMedia("(max-width: 1099px)").matches) document.querySelector(".contents details").open = false;
})();

// On paper nothing is folded.
{
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const details of folded) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of folded) details.open = false; });
}

// The rollout viewer. Model text only ever becomes the text of a node.
(() => {
  const source = document.getElementById("rollouts");
  if (!source) return;
  const { contexts } = JSON.parse(source.textContent);
  const root = document.querySelector(".viewer");
  const find = (selector) => root.querySelector(selector);
  const selects = Object.fromEntries([...root.querySelectorAll("select")].map((s) => [s.name, s]));
  const [slider, output, play, inspected] = ["input", "output", ".play", ".inspected"].map(find);
  const SPEED = 450;
  const PROSE = 48; // tokens from which a completion is set as running text, without a number under each token
  const RAMPS = {
    sequential: ["#00204d", "#213d6b", "#555b6c", "#7b7a77", "#a59c74", "#d3c064", "#ffe945"],
    diverging: ["#542788", "#8073ac", "#b2abd2", "#f2f2f2", "#fdb863", "#e08214", "#b35806"],
  };
  let steps = 0;
  let timer = 0;
  let cells = [];

  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  const channels = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));

  const shade = (ramp, share) => {
    const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
    const low = Math.min(Math.floor(place), ramp.length - 2);
    const [a, b] = [channels(ramp[low]), channels(ramp[low + 1])];
    const rgb = a.map((value, i) => Math.round(value + (b[i] - value) * (place - low)));
    const isLight = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 127;
    return { background: `rgb(${rgb.join(" ")})`, text: isLight ? "#000" : "#fff" };
  };

  const current = () => {
    const context = contexts[selects.context.value];
    const problem = context.problems[selects.problem.value];
    return { context, problem, arm: problem.arms[selects.arm.value] };
  };

  const fill = (select, names, off = []) => {
    const before = select.value;
    select.replaceChildren(...names.map((name, i) => {
      const option = make("option", "", name);
      option.value = i;
      option.disabled = Boolean(off[i]);
      return option;
    }));
    const usable = names.map((_, i) => String(i)).filter((i) => !off[i]);
    select.value = usable.includes(before) ? before : usable[0];
  };

  // Which value is which colour: a function of a token's number, and the ends of the scale.
  const colouring = (rollouts, name) => {
    const values = rollouts.flatMap((r) => r[name] ?? []).filter((v) => v !== null && (name !== "unmask_step" || v >= 0));
    if (!values.length) return null;
    if (name === "advantage") {
      const reach = values.reduce((most, v) => Math.max(most, Math.abs(v)), 1e-9);
      return { ramp: RAMPS.diverging, low: -reach, high: reach };
    }
    return { ramp: RAMPS.sequential, low: 0, high: Math.max(values.reduce((most, v) => Math.max(most, v), 0), 1e-9) };
  };

  const show = (value, name) => {
    if (value === null || value === undefined) return "";
    if (name === "unmask_step") return value < 0 ? "never" : String(value + 1);
    return (name === "advantage" && value > 0 ? "+" : "") + value.toFixed(2);
  };

  const describe = (rollout, i) => {
    const parts = [`token ${i + 1}`];
    if (rollout.unmask_step) {
      const step = rollout.unmask_step[i];
      parts.push(step < 0 ? "never revealed" : `revealed in step ${step + 1}`);
    }
    for (const name of ["progress", "advantage", "entropy"]) {
      if (rollout[name]?.[i] != null) parts.push(`${name} ${show(rollout[name][i], name)}`);
    }
    return parts.join(" · ");
  };

  const drawRollout = (rollout, name, scale) => {
    const card = make("article", "rollout");
    const line = make("div", rollout.tokens.length > PROSE ? "tokens prose" : "tokens");
    rollout.tokens.forEach((text, i) => {
      const cell = make("span", "token");
      cell.append(make("bdi", "", text || " "));
      const value = rollout[name]?.[i];
      if (rollout.tokens.length <= PROSE) cell.append(make("small", "", show(value, name) || " "));
      if (scale && value !== null && value !== undefined && !(name === "unmask_step" && value < 0)) {
        const { background, text: ink } = shade(scale.ramp, (value - scale.low) / (scale.high - scale.low));
        cell.style.setProperty("--fill", background);
        cell.style.setProperty("--on-fill", ink);
      }
      cell.title = describe(rollout, i);
      cell.addEventListener("click", () => { inspected.textContent = cell.title; });
      cells.push({ cell, step: rollout.unmask_step ? rollout.unmask_step[i] : -2 });
      line.append(cell);
    });
    if (rollout.left_out) line.append(make("span", "muted", ` … ${rollout.left_out} more tokens`));
    card.append(line);
    if (rollout.solution) card.append(make("p", "solution muted", rollout.solution));
    return card;
  };

  // Rollouts of one side by final answer, the most frequent first; equal solutions next to each other.
  const drawSide = (title, rollouts, name, scale) => {
    const side = make("section");
    const heading = make("h3", "", title);
    heading.append(make("span", "muted", ` ${rollouts.length}`));
    side.append(heading);
    const groups = new Map();
    for (const rollout of rollouts) {
      const key = rollout.answer ?? "no readable answer";
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(rollout);
    }
    for (const [answer, members] of [...groups].sort((a, b) => b[1].length - a[1].length)) {
      const solutions = new Set(members.map((m) => m.solution).filter(Boolean)).size;
      const group = make("div", "group");
      const head = make("h4");
      head.append(make("bdi", "", answer), make("span", "muted",
        ` ${members.length} rollout${members.length > 1 ? "s" : ""}${solutions > 1 ? `, ${solutions} different solutions` : ""}`));
      group.append(head);
      members.sort((a, b) => (a.solution ?? "").localeCompare(b.solution ?? ""));
      group.append(...members.map((rollout) => drawRollout(rollout, name, scale)));
      side.append(group);
    }
    if (!rollouts.length) side.append(make("p", "muted", "none"));
    return side;
  };

  const drawProblem = ({ problem, context, arm }) => {
    const head = context.arms[selects.arm.value];
    const rows = [["Prompt", problem.prompt], ["Answer", problem.answer],
      ["Schedule", head.schedule && `${head.schedule} over ${head.coordinate}`],
      ["Pass rate", arm.pass_rate === null ? "" : arm.pass_rate.toFixed(2)]];
    find(".problem").replaceChildren(...rows.filter(([, text]) => text).map(([term, text]) => {
      const row = make("div");
      row.append(make("dt", "", term), make("dd", "", text));
      return row;
    }));
  };

  const drawScale = (scale, name) => {
    const bar = find(".scale");
    bar.hidden = !scale;
    if (!scale) return;
    bar.querySelector("i").style.backgroundImage = `linear-gradient(to right, ${scale.ramp.join(", ")})`;
    bar.querySelector(".low").textContent = show(scale.low, name);
    bar.querySelector(".high").textContent = show(scale.high, name);
  };

  const goTo = (step) => {
    slider.value = Math.min(Math.max(step, 0), steps);
    const now = Number(slider.value);
    for (const { cell, step: revealed } of cells) {
      cell.classList.toggle("masked", revealed !== -2 && (revealed < 0 || revealed >= now));
      cell.classList.toggle("fresh", revealed >= 0 && revealed === now - 1 && now < steps);
    }
    output.textContent = now === 0 ? `all masked` : `step ${now} of ${steps}`;
    slider.setAttribute("aria-valuetext", output.textContent);
  };

  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
    play.setAttribute("aria-label", "Play the denoising");
  };

  const start = () => {
    if (Number(slider.value) >= steps) goTo(0);
    play.textContent = "Pause";
    play.setAttribute("aria-label", "Pause");
    timer = setInterval(() => {
      goTo(Number(slider.value) + 1);
      if (Number(slider.value) >= steps) stop();
    }, SPEED);
  };

  // `keep`: stay at the step that is shown, e.g. when only the arm changes.
  const draw = (keep) => {
    const { context, problem } = current();
    fill(selects.arm, context.arms.map((arm) => arm.label), problem.arms.map((arm) => !arm));
    const now = current();
    const name = selects.colour.value;
    const rollouts = now.arm.rollouts;
    const before = Number(slider.value);
    const atEnd = before >= steps;
    steps = 1 + rollouts.flatMap((r) => r.unmask_step ?? []).reduce((most, step) => Math.max(most, step), -1);
    slider.max = steps;
    const scale = colouring(rollouts, name);
    cells = [];
    const right = rollouts.filter((r) => r.status === "right");
    const wrong = rollouts.filter((r) => r.status !== "right");
    find(".sides").replaceChildren(drawSide("Right", right, name, scale), drawSide("Wrong", wrong, name, scale));
    drawProblem(now);
    drawScale(scale, name);
    goTo(keep && !atEnd ? before : steps);
  };

  const drawContext = () => {
    const context = contexts[selects.context.value];
    selects.problem.value = "";
    fill(selects.problem, context.problems.map((problem) => {
      const rates = problem.arms.filter((arm) => arm && arm.pass_rate !== null).map((arm) => arm.pass_rate);
      const span = rates.length ? `, pass rate ${Math.min(...rates).toFixed(2)} to ${Math.max(...rates).toFixed(2)}` : "";
      return problem.id + span;
    }));
    draw(false);
  };

  fill(selects.context, contexts.map((context) => context.name));
  find(".context").hidden = contexts.length < 2;
  selects.context.addEventListener("change", () => { stop(); drawContext(); });
  selects.problem.addEventListener("change", () => { stop(); draw(false); });
  selects.arm.addEventListener("change", () => draw(true));
  selects.colour.addEventListener("change", () => draw(true));
  slider.addEventListener("input", () => { stop(); goTo(Number(slider.value)); });
  play.addEventListener("click", () => (timer ? stop() : start()));
  find(".back").addEventListener("click", () => { stop(); goTo(Number(slider.value) - 1); });
  find(".on").addEventListener("click", () => { stop(); goTo(Number(slider.value) + 1); });
  root.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way || event.target.matches("select, input")) return; // these have arrows of their own
    event.preventDefault();
    stop();
    goTo(Number(slider.value) + way);
  });
  for (const part of root.querySelectorAll("[hidden]:not(.context)")) part.hidden = false;
  drawContext();
})();

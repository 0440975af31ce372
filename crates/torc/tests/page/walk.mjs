// Walks through the page in a real browser. Called by `tests/it/page_walk.rs` with a JSON object: the link, the directory of
// the packages, and what to do. Prints one line per finding that is wrong; none means that all is well.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const task = JSON.parse(process.argv[2]);
const require = createRequire(task.lab + "/npm/node_modules/");
const { chromium } = require("playwright-core");
const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: task.chromium, args });
const wrong = (text) => console.log("WRONG " + text);
const origin = task.link ? new URL(task.link).origin : "";

/** A page that tells of every error and of every request to elsewhere. */
async function open(context) {
  const page = await context.newPage();
  page.on("pageerror", (error) => wrong(`script error: ${error.message}`));
  page.on("console", (message) => { if (message.type() === "error" && !task.tolerate) wrong(`console: ${message.text()}`); });
  page.on("request", (request) => { if (origin && !request.url().startsWith(origin) && !/^(data|blob):/.test(request.url())) wrong(`request to ${request.url()}`); });
  page.on("dialog", (dialog) => { wrong("something of a job was run: " + dialog.message()); dialog.dismiss(); });
  return page;
}

/** The place is drawn and nothing of it loads any more. */
async function settled(page) {
  await page.waitForSelector("main .place, main.signin");
  await page.waitForFunction(() => !document.querySelector(".loading"));
  // The pulse keeps a request open, so that the network is never idle.
  await page.waitForFunction(() => document.querySelector("main.signin, main .place > *"));
}

const PLACES = ["", "w/ID", "w/ID/jobs?where=", "w/ID/failures", "w/ID/graph", "w/ID/timeline", "w/ID/resources", "w/ID/nodes", "w/ID/events", "w/ID/data", "w/ID/spec", "j/JOB"];
const address = (place) => `${origin}/ui/${place.replace("ID", task.workflow).replace("JOB", task.job)}`;

const jobs = {
  /** Every place, both themes, three widths: no error, no overflow, few nodes, accessible. */
  async places() {
    const axe = readFileSync(task.lab + "/npm/node_modules/axe-core/axe.min.js", "utf8");
    const state = {};
    for (const [scheme, width, height] of [["light", 1280, 720], ["dark", 1280, 720], ["light", 390, 844], ["dark", 320, 640]]) {
      const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height }, bypassCSP: true });
      if (state.session) await context.addInitScript((kept) => { for (const [k, v] of Object.entries(kept)) sessionStorage.setItem(k, v); }, state.session);
      const page = await open(context);
      if (!state.session) {
        await page.goto(task.link);
        await settled(page);
        if (page.url().includes("k=")) wrong("the code stays in the address");
        state.session = await page.evaluate(() => ({ ...sessionStorage }));
      }
      for (const place of PLACES) {
        await page.goto(address(place));
        await settled(page);
        const at = `${place || "workflows"} ${scheme} ${width}`;
        const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
        if (nodes > 2000) wrong(`${at}: ${nodes} nodes`);
        if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth + 1)) wrong(`${at}: wider than the window`);
        if (await page.evaluate(() => document.querySelectorAll("h1").length) !== 1) wrong(`${at}: not one h1`);
        if (await page.evaluate(() => document.querySelector(".problem")?.textContent)) wrong(`${at}: says there is a problem`);
        if (task.shots) await page.screenshot({ path: `${task.shots}/${scheme}-${width}-${(place || "workflows").replace(/[^a-zA-Z]+/g, "_")}.png` });
        if (width < 1280) continue;
        await page.evaluate(axe);
        const found = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
        for (const one of found.violations) wrong(`${at}: ${one.id}: ${one.help} at ${one.nodes.slice(0, 2).map((n) => n.target.join(" ")).join(", ")}`);
      }
      await context.close();
    }
  },

  /** Two attempts of a job side by side, reached by its button; their text is no markup. */
  async compare() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 720 } }));
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("j/JOB"));
    await settled(page);
    await page.getByRole("button", { name: "Compare with attempt 1" }).click();
    await page.waitForSelector(".line.gone");
    const said = await page.evaluate(() => [...document.querySelectorAll(".loglines .line")].map((line) => line.textContent));
    for (const one of task.expected) if (!said.includes(one)) wrong(`no line ${JSON.stringify(one)} in ${JSON.stringify(said)}`);
    if (said.length !== task.expected.length) wrong(`lines: ${JSON.stringify(said)}`);
    if (!page.url().includes("compare=1")) wrong("the comparison has no address");
    await page.goBack();
    await page.waitForSelector("[aria-label='Log']");
  },

  /** From the link to a recovered job with the keyboard alone. */
  async keyboard() {
    const page = await open(await browser.newContext());
    await page.goto(task.link);
    await settled(page);
    await page.keyboard.press("Control+k");
    await page.keyboard.type("sweep");
    await page.waitForSelector(".palette li:has-text('workflow sweep')");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/ui/w/**");
    await settled(page);
    await page.keyboard.press("g");
    await page.keyboard.press("f");
    await page.waitForSelector(".failure button.primary");
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(() => document.activeElement?.classList.contains("primary"))) break;
    }
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog button.primary:not([disabled])");
    const command = await page.textContent("dialog .command code");
    if (!command.startsWith("torc jobs act recover")) wrong(`the command is ${command}`);
    for (let i = 0; i < 20; i++) {
      if (await page.evaluate(() => document.activeElement?.classList.contains("primary") && !!document.activeElement.closest("dialog"))) break;
      await page.keyboard.press("Tab");
    }
    await page.keyboard.press("Enter");
    await page.waitForSelector("#toast.show");
    await page.waitForSelector("dialog", { state: "detached" });
  },

  /** A link is good once; seven tabs of a browser share its session; the server goes and comes back. */
  async tabs() {
    const context = await browser.newContext();
    const first = await open(context);
    await first.goto(task.link);
    await settled(first);
    for (let i = 0; i < 6; i++) {
      const tab = await open(context);
      await tab.goto(address("w/ID"));
      await settled(tab);
      if (await tab.evaluate(() => !!document.querySelector(".signin"))) wrong(`tab ${i + 2} is not signed in`);
    }
    const other = await open(await browser.newContext());
    task.tolerate = true;
    await other.goto(task.link);
    await other.waitForSelector(".signin");
    if (!(await other.textContent(".signin")).includes("used")) wrong("a link is good twice");
  },

  /** Budgets of time on many jobs. */
  async large() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 720 } }));
    await page.goto(task.link);
    await settled(page);
    const figures = {};
    const timed = async (name, most, work) => {
      // The first call fills the server's memory; what people wait for is measured then.
      await work();
      const begin = Date.now();
      await work();
      figures[name] = Date.now() - begin;
      if (figures[name] > most) wrong(`${name} took ${figures[name]} ms, the budget is ${most} ms`);
    };
    await timed("overview", task.budgets.overview, async () => { await page.goto(address("")); await settled(page); await page.goto(address("w/ID")); await page.waitForSelector(".families tbody tr"); });
    await timed("jobs: first rows", task.budgets.rows, async () => { await page.goto(address("w/ID")); await settled(page); const begin = Date.now(); await page.click("nav a:has-text('Jobs')"); await page.waitForSelector(".tspace .badge"); figures.rows = Date.now() - begin; });
    const filter = async (text, wanted) => { await page.fill("#filter", text); await page.waitForFunction((n) => document.querySelector(".actionbar [role=status]")?.textContent === n, wanted); };
    await filter("", task.wanted.all);
    await timed("jobs: filter", task.budgets.filter, async () => { await filter("name~77$", task.wanted.some); await filter("", task.wanted.all); });
    await timed("jobs: scroll", task.budgets.scroll, async () => {
      await page.evaluate(() => { const body = document.querySelector(".tbody"); body.scrollTop = body.scrollTop > 1e6 ? 0 : body.scrollHeight / 2; });
      await page.waitForFunction(() => { const rows = document.querySelectorAll(".tspace .tr"); return rows.length && ![...rows].some((row) => row.querySelector(".wait")); });
    });
    const rows = await page.evaluate(() => document.querySelectorAll(".tspace .tr").length);
    if (rows > 80) wrong(`${rows} rows in the document`);
    await timed("timeline", task.budgets.timeline, async () => { await page.goto(address("w/ID")); await settled(page); await page.click("nav a:has-text('Timeline')"); await page.waitForFunction(() => document.querySelector("canvas")?.dataset.row); });
    figures.frames = await page.evaluate(async () => {
      const canvas = document.querySelector("canvas");
      let frames = 0;
      const begin = performance.now();
      while (performance.now() - begin < 1000) {
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: frames % 2 ? "a" : "d" }));
        await new Promise((done) => requestAnimationFrame(done));
        frames++;
      }
      return frames;
    });
    if (figures.frames < task.budgets.frames) wrong(`${figures.frames} frames a second while panning`);
    console.log("FIGURES " + JSON.stringify(figures));
  },

  /** A report from disk, without a network. */
  async report() {
    const context = await browser.newContext({ offline: true });
    const page = await context.newPage();
    page.on("pageerror", (error) => wrong(`script error: ${error.message}`));
    page.on("request", (request) => { if (!/^(file|data|blob):/.test(request.url())) wrong(`request to ${request.url()}`); });
    page.on("dialog", (dialog) => { wrong("something of a job was run"); dialog.dismiss(); });
    await page.goto("file://" + task.file);
    await page.waitForSelector("nav a");
    for (const place of ["Jobs", "Failures", "Graph", "Timeline", "Resources", "Spec", "Overview"]) {
      await page.click(`nav a:has-text('${place}')`);
      await settled(page);
      if (await page.evaluate(() => document.querySelector(".problem")?.textContent)) wrong(`${place}: says there is a problem`);
      if (task.shots) await page.screenshot({ path: `${task.shots}/report-${place}.png` });
    }
    const plain = await browser.newContext({ javaScriptEnabled: false });
    const still = await plain.newPage();
    await still.goto("file://" + task.file);
    if (!(await still.textContent("main")).includes("Families")) wrong("nothing to read without JavaScript");
  },
};

try {
  await jobs[task.do]();
} catch (error) {
  wrong(String(error.stack || error).split("\n").slice(0, 6).join(" | "));
}
if (task.done) writeFileSync(task.done, "");
await browser.close();

// Walks through the page in a real browser. Called by `tests/it/page_walk.rs` with a JSON object: the link, the directory of
// the packages, and what to do. Prints one line per finding that is wrong; none means that all is well.
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const task = JSON.parse(process.argv[2]);
const require = createRequire(task.lab + "/npm/node_modules/");
const { chromium } = require("playwright-core");
const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: task.chromium, args });
const wrong = (text) => console.log("WRONG " + text);
let origin = task.link ? new URL(task.link).origin : "";
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
/** Asks the test to do something, such as killing the server, and waits until it has done it. */
const step = async (name) => { console.log("STEP " + name); await answers.next(); };

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

const PLACES = ["", "w/ID", "w/ID/jobs?where=", "w/ID/failures", "w/ID/graph", "w/ID/graph?group=job", "w/ID/graph?open=1", "w/ID/timeline", "w/ID/resources", "w/ID/nodes", "w/ID/events", "w/ID/data", "w/ID/spec", "j/JOB"];
const address = (place) => `${origin}/ui/${place.replace("ID", task.workflow).replace("JOB", task.job)}`;

const jobs = {
  /** Every place, both themes, three widths: no error, no overflow, few nodes, accessible. */
  async places() {
    const axe = readFileSync(task.lab + "/npm/node_modules/axe-core/axe.min.js", "utf8");
    const state = {};
    for (const [scheme, width, height] of [["light", 1280, 720], ["dark", 1280, 720], ["light", 390, 844], ["dark", 320, 640], ["light", 3840, 2160]]) {
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
        if (width !== 1280) continue;
        await page.emulateMedia({ media: "print", colorScheme: scheme });
        if (await page.isVisible("nav") || await page.isVisible("header")) wrong(`${at}: the places are printed`);
        if (task.shots && /\/(failures|resources)$|ID$/.test(place)) await page.pdf({ path: `${task.shots}/print-${place.replace(/[^a-zA-Z]+/g, "_")}.pdf` });
        await page.emulateMedia({ media: null, colorScheme: scheme });
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

  /** The output of a job with steps: groups are folded and open, lines have links, and the steps stand in a table. */
  async log() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 900 } }));
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("j/JOB?stream=stdout"));
    await page.waitForSelector(".line.group");
    const seen = () => page.evaluate(() => [...document.querySelectorAll(".loglines .line")].filter((one) => one.offsetParent).map((one) => one.querySelector(".text").textContent));
    const is = async (what, wanted) => { const got = await seen(); if (JSON.stringify(got) !== JSON.stringify(wanted)) wrong(`${what}: ${JSON.stringify(got)}`); };
    await is("folded", ["begin", "Compile", "100%", "done"]);
    await page.click("button[aria-expanded]");
    await is("open", ["begin", "Compile", "one", "two", "100%", "done"]);
    await page.click("a[href='#L1']");
    await page.click("a[href='#L3']", { modifiers: ["Shift"] });
    await page.waitForURL("**#L1-L3");
    await page.reload();
    await page.waitForSelector("#L3.hit");
    if (await page.locator(".hit").count() !== 3) wrong(`${await page.locator(".hit").count()} lines are marked`);
    await is("a marked line in a group", ["begin", "Compile", "one", "two", "100%", "done"]);
    await page.fill("[aria-label='Search the whole output']", "DONE");
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=1 of 1");
    await page.check("label:has-text('case') input");
    await page.focus("[aria-label='Search the whole output']");
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=not found in 7 lines");
    const steps = await page.evaluate(() => [...document.querySelectorAll("section:has(> h2)")].find((one) => one.querySelector("h2").textContent === "Steps")?.textContent || "");
    if (!steps.includes("build") || !steps.includes("✕ failed exit 3")) wrong(`the steps are ${steps}`);
  },

  /** Other machines, failures that are tried again, and the ways between two jobs. */
  async whatif() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 900 } }));
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("w/ID/timeline"));
    await page.waitForSelector("h2:has-text('Where the time went')");
    const spent = await page.textContent("section:has(h2:text-is('Where the time went'))");
    if (!/\d+% work that succeeded/.test(spent) || !/\d+% lost in failed attempts/.test(spent)) wrong(`the time went ${spent}`);
    const before = await page.evaluate(() => document.querySelector("canvas").toDataURL());
    await page.focus("input[aria-label=Nodes]");
    await page.keyboard.press("ArrowRight");
    await page.waitForSelector("p.big:has-text('All of it once more would take')");
    await page.check("label:has-text('failed now') input");
    await page.waitForSelector("p.big:has-text('It would end about')");
    const command = await page.textContent("section:has(h2:text-is('What if')) .command code");
    if (!/^torc predict 1 --nodes \d+ --cores \d+ --recover$/.test(command)) wrong(`the command is ${command}`);
    await page.waitForFunction((old) => document.querySelector("canvas").toDataURL() !== old, before);
    await page.goto(address("w/ID/graph?focus=JOB"));
    await page.fill("input[aria-label='Ways to the job of this name']", "report");
    await page.keyboard.press("Enter");
    await page.waitForURL("**&to=*");
    await page.waitForFunction(() => document.querySelector("h1").textContent === "Between two jobs");
    await page.waitForSelector(".node.critical");
    const names = await page.evaluate(() => [...document.querySelectorAll(".node .name")].map((one) => one.textContent).sort());
    if (JSON.stringify(names) !== JSON.stringify(["prep", "report", ...task.between].sort())) wrong(`between them are ${names}`);
  },

  /** What a runner has and what its jobs hold of it, as bars with their numbers; on a phone each cell says what it is. */
  async runners() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 720 } }));
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("w/ID/nodes"));
    const cell = (title) => page.locator(`td[data-title='${title}']`);
    /** The text, and how much of the bar is full. */
    const seen = async (title) => [(await cell(title).textContent()).trim(), await cell(title).locator(".bar").evaluate((bar) => Math.round(100 * [...bar.children].reduce((sum, part) => sum + part.getBoundingClientRect().width, 0) / bar.getBoundingClientRect().width))];
    for (const [title, ...wanted] of [["CPUs busy", "2 of 8", 25], ["Memory given", "4.0 GiB of 8.0 GiB", 50], ["GPUs", "1 of 4", 25]]) {
      const found = await seen(title);
      if (JSON.stringify(found) !== JSON.stringify(wanted)) wrong(`${title}: ${found} instead of ${wanted}`);
    }
    const [left, full] = await seen("Time left");
    if (!/^(2 h|1 h 59 min)$/.test(left) || full < 98) wrong(`time left: ${left}, ${full}%`);
    const label = await cell("CPUs busy").locator(".bar").getAttribute("aria-label");
    if (label !== "2 of 8") wrong(`the bar says "${label}"`);
    await page.setViewportSize({ width: 390, height: 844 });
    const named = await cell("CPUs busy").evaluate((one) => getComputedStyle(one, "::before").content);
    if (named !== '"CPUs busy"') wrong(`a cell on a phone says ${named}`);
    if (await page.isVisible("th")) wrong("the heads of the columns on a phone");
    await step("open");
    await page.waitForSelector("td[data-title='Last seen']:has-text('left ')");
    if (await page.locator("td .bar").count()) wrong("bars of a runner that has left");
    await page.waitForSelector("td[data-title='CPUs busy']:text-is('8')");
    // A workflow in which nothing has run.
    await page.goto(address("w/2/timeline"));
    await page.waitForSelector("[role=status]:has-text('No attempt has begun yet.')");
    if (await page.isVisible("canvas")) wrong("a timeline of no attempts");
    await page.goto(address("w/2/nodes"));
    await page.waitForSelector(".empty:has-text('No runner has worked for it yet.')");
  },

  /** Allocations: asked for, shown, given up. */
  async nodes() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 900 } }));
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("w/ID/nodes"));
    await page.waitForSelector("h2:has-text('Allocations in Slurm')");
    await page.waitForSelector("td:has-text('others are before it in the queue')");
    await page.waitForSelector("td:has-text('expected ')");
    await page.waitForSelector("td:has-text('0.50 / 2.00')");
    await page.click("button:has-text('Output')");
    await page.waitForSelector("dialog pre:has-text('slurmstepd: error: <b>')");
    await page.click("dialog button:has-text('Close')");
    await page.click("button:has-text('Ask for more')");
    await page.fill("dialog input", "2");
    await page.waitForSelector("dialog code:text-is('torc slurm schedule-nodes 1 --scheduler short -n 2')");
    await page.click("dialog button.primary");
    await page.waitForSelector("#toast.show");
    await page.waitForFunction(() => [...document.querySelectorAll("tr")].filter((row) => row.textContent.includes("not sent")).length === 2);
    for (const left of [1, 0]) {
      await page.click("tr:has-text('not sent') button:has-text('Cancel')");
      const command = await page.textContent("dialog .command code");
      if (!/^torc slurm allocations 1 --cancel \d+$/.test(command)) wrong(`the command is ${command}`);
      await page.click("dialog button.primary");
      await page.waitForSelector("dialog", { state: "detached" });
      await page.waitForFunction((n) => document.querySelectorAll("tr button").length && [...document.querySelectorAll("tr")].filter((row) => row.textContent.includes("not sent") && row.textContent.includes("Cancel")).length === n, left);
    }
    await page.goto(address("w/ID"));
    await page.waitForSelector("li:has-text(\"in Slurm's queue\")");
    await page.goto(address(""));
    await page.waitForSelector(".needs li:has-text('others are before it in the queue')");
  },

  /** What an agent proposes with little confidence waits for a person. */
  async verdict() {
    const page = await open(await browser.newContext());
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("w/ID/failures"));
    await page.waitForSelector("h2:has-text('bot proposes: retry a')");
    if (!(await page.textContent("main")).includes("The <b>network</b> was away".slice(4))) wrong("the reason is not told as text");
    await page.click("button:has-text('Accept')");
    await page.waitForSelector("#toast.show:has-text('accepted')");
    await page.waitForSelector("h2:has-text('bot proposes')", { state: "detached" });
  },

  /** Families open and close, with the mouse and with keys; a failure shows its memory and what was done, and how to hand it on. */
  async families() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 720 } }));
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("w/ID/jobs?where="));
    await page.waitForSelector(".tspace .td.group");
    const rows = () => page.evaluate(() => [...document.querySelectorAll(".tspace .tr")].map((row) => (row.querySelector(".group") ? "# " : "") + (row.querySelector("button,a")?.textContent || "…").replace(/^[▸▾] /, "")));
    const is = async (what, wanted) => {
      await page.waitForFunction(() => ![...document.querySelectorAll(".tspace .tr")].some((row) => row.querySelector(".wait")));
      const got = await rows();
      if (JSON.stringify(got) !== JSON.stringify(wanted)) wrong(`${what}: ${JSON.stringify(got)}`);
    };
    await is("closed", ["# prep", "# train"]);
    await page.focus(".tbody");
    await page.keyboard.press("Enter");
    await is("the first is open", ["# prep", "prep", "# train"]);
    await page.keyboard.press("Enter");
    await page.click("button:has-text('train')");
    await page.waitForFunction(() => document.querySelectorAll(".tspace .badge").length > 5);
    await page.keyboard.press("Escape");
    await page.uncheck("label:has-text('by family') input");
    await page.waitForURL("**flat=1");
    await page.waitForSelector(".tspace .tr:nth-child(2) .badge");
    await page.check("label:has-text('by family') input");
    await page.waitForSelector(".tspace .td.group");
    await page.click(".tr:has-text('train') button:has-text('only these')");
    await page.waitForFunction(() => document.querySelector("#filter").value === "family:train");
    await page.waitForFunction(() => document.querySelector(".actionbar [role=status]")?.textContent === "130 jobs");
    // The order and what is selected are in the address.
    await page.click(".thead button:has-text('Name')");
    await page.click(".thead button:has-text('Name')");
    await page.waitForURL("**sort=-name");
    const first = () => page.waitForFunction(() => document.querySelector(".tspace .tr a")?.textContent === "train_99").catch(() => wrong("the order by name is lost"));
    await first();
    await page.click(".tspace .tr:has(a:text-is('train_98')) input");
    await page.waitForURL("**sort=-name&selected=*");
    await page.reload();
    await first();
    await page.waitForSelector(".actionbar:has-text('1 job selected')");
    if (!await page.isChecked(".tspace .tr:has(a:text-is('train_98')) input")) wrong("the selection is lost");
    await page.click("button:has-text('Clear')");
    await page.waitForURL("**sort=-name");
    await page.goto(address("w/ID/failures"));
    await page.waitForSelector(".failure svg.spark");
    const said = await page.textContent(".failure");
    if (!/Memory of train_7: most \d+/.test(said)) wrong(`the memory is not told: ${said}`);
    if (!said.includes("Done so far: tried again 1 time")) wrong(`what was done is not told: ${said}`);
    await page.click("button:has-text('Hand to an agent')");
    const commands = await page.evaluate(() => [...document.querySelectorAll("dialog .command code")].map((one) => one.textContent));
    if (commands[0] !== "torc mcp config claude" || !commands[1].includes(`job ${task.job} of workflow 1`)) wrong(`the agent gets ${JSON.stringify(commands)}`);
    await page.click("dialog button:has-text('Close')");
    await page.goto(address("w/ID/data"));
    const state = async (text) => { await page.reload(); await page.waitForSelector(`tr:has-text("made.txt") td:has-text("${text}")`).catch(() => wrong(`no file is ${text}`)); };
    await state("✓ there");
    await step("touch");
    await state("⚠ changed since");
    await step("remove");
    await state("✕ missing");
    // The state of the job that is open is told as it changes.
    await page.goto(address("j/JOB"));
    await page.waitForSelector("h1");
    await step("change");
    await page.click("button:has-text('Show what changed')");
    await page.waitForSelector("h1 + span .st-ready");
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
    await page.waitForSelector(".failure button[data-key=r]");
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(() => document.activeElement?.getAttribute("data-key") === "r")) break;
    }
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog button.primary:not([disabled])");
    const command = await page.textContent("dialog .command code");
    if (!command.startsWith("torc jobs act retry")) wrong(`the command is ${command}`);
    for (let i = 0; i < 20; i++) {
      if (await page.evaluate(() => document.activeElement?.classList.contains("primary") && !!document.activeElement.closest("dialog"))) break;
      await page.keyboard.press("Tab");
    }
    await page.keyboard.press("Enter");
    await page.waitForSelector("#toast.show");
    await page.waitForSelector("dialog", { state: "detached" });
  },

  /** A link is good once; seven tabs of a browser share its session and one stream. */
  async tabs() {
    const context = await browser.newContext();
    let streams = 0;
    context.on("request", (request) => { if (/\/pulse(\?|$)/.test(request.url())) streams++; });
    const first = await open(context);
    await first.goto(task.link);
    await settled(first);
    const tabs = [];
    for (let i = 0; i < 7; i++) {
      const tab = i ? await open(context) : first;
      await tab.goto(address("w/ID"));
      await settled(tab);
      if (await tab.evaluate(() => !!document.querySelector(".signin"))) wrong(`tab ${i + 1} is not signed in`);
      tabs.push(tab);
    }
    await step("change");
    for (const [i, tab] of tabs.entries()) await tab.waitForFunction(() => document.querySelector(".legend")?.textContent.includes("ready"), null, { timeout: 20000 }).catch(() => wrong(`tab ${i + 1} does not tell of the change`));
    if (streams !== 1) wrong(`${streams} streams for seven tabs`);
    // The tab that reads the stream goes; another one takes over.
    await tabs[0].close();
    await tabs[1].waitForTimeout(100);
    await step("change back");
    for (const [i, tab] of tabs.slice(1).entries()) await tab.waitForFunction(() => document.querySelector(".legend")?.textContent.includes("2 canceled"), null, { timeout: 20000 }).catch(() => wrong(`tab ${i + 2} tells of nothing when the first is closed`));
    // Tabs that are not seen ask for nothing; one that is seen again tells what has changed.
    const rest = tabs.slice(1);
    const hide = (hidden) => Promise.all(rest.map((tab) => tab.evaluate((is) => { Object.defineProperty(document, "hidden", { value: is, configurable: true }); document.dispatchEvent(new Event("visibilitychange")); }, hidden)));
    await hide(true);
    let asked = 0;
    context.on("request", () => { asked++; });
    await step("reset");
    await rest[0].waitForTimeout(6000);
    if (asked) wrong(`hidden tabs asked ${asked} times`);
    await hide(false);
    for (const [i, tab] of rest.entries()) await tab.waitForFunction(() => document.querySelector(".legend")?.textContent.includes("uninitialized"), null, { timeout: 20000 }).catch(() => wrong(`tab ${i + 2} tells of nothing when it is seen again`));
    const other = await open(await browser.newContext());
    task.tolerate = true;
    await other.goto(task.link);
    await other.waitForSelector(".signin");
    if (!(await other.textContent(".signin")).includes("used")) wrong("a link is good twice");
  },

  /** The server is killed and started again: the page says how old its data are, stays usable, and comes back by itself. */
  async lost() {
    task.tolerate = true;
    const context = await browser.newContext();
    const page = await open(context);
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("w/ID"));
    await page.waitForSelector(".families tbody tr");
    const list = await open(context);
    await list.goto(address("w/ID/jobs?where="));
    await list.waitForSelector(".tspace .badge");
    const rows = await list.locator(".tspace .tr").count();
    await step("kill");
    for (const tab of [page, list]) {
      await tab.waitForSelector(".lost:not([hidden])");
      const told = await tab.textContent(".lost");
      if (!/as of \d\d:\d\d:\d\d \(.+ ago\)/.test(told)) wrong(`the banner says ${told}`);
      await tab.waitForFunction((before) => document.querySelector(".lost").textContent !== before, told);
    }
    if (!(await page.locator(".families tbody tr").count())) wrong("the overview is empty without the server");
    if ((await list.locator(".tspace .tr").count()) !== rows) wrong("rows are gone without the server");
    await list.focus(".tbody");
    await list.keyboard.press("ArrowDown");
    await page.click("nav a:has-text('Graph')");
    await page.waitForSelector(".problem:has-text('opens by itself')");
    await step("start");
    await page.waitForSelector(".node", { timeout: 30000 });
    for (const tab of [page, list]) await tab.waitForSelector(".lost", { state: "hidden", timeout: 30000 });
    await page.goBack();
    await page.waitForSelector(".families tbody tr");
    await step("change");
    await page.waitForFunction(() => document.querySelector(".legend")?.textContent.includes("ready"), null, { timeout: 30000 });
  },

  /** Below the prefixes of proxies: one keeps the prefix (Open OnDemand's /node/), one takes it away (jupyter-server-proxy, /rnode/). */
  async prefix() {
    const server = new URL(task.links[0]);
    const proxy = http.createServer((request, response) => {
      const bare = request.url.replace(/^\/proxy\/99(?=\/)/, "");
      if (bare === request.url && !request.url.startsWith("/node/h1/99/")) { wrong(`asked outside of the prefix: ${request.url}`); response.writeHead(404).end(); return; }
      const on = http.request({ host: server.hostname, port: server.port, method: request.method, path: bare, headers: request.headers }, (got) => { response.writeHead(got.statusCode, got.headers); got.pipe(response); });
      on.on("error", () => response.destroy());
      response.on("close", () => on.destroy());
      request.pipe(on);
    });
    await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
    origin = `http://127.0.0.1:${proxy.address().port}`;
    for (const [i, prefix] of ["/node/h1/99", "/proxy/99"].entries()) {
      const context = await browser.newContext();
      const page = await open(context);
      const link = new URL(task.links[i]);
      await page.goto(origin + prefix + link.pathname + link.hash);
      await page.waitForSelector(".families tbody tr");
      await page.waitForFunction(() => document.querySelector("[aria-live=polite].sr")?.textContent.includes("done"));
      for (const place of ["Jobs", "Failures", "Graph", "Timeline", "Spec"]) {
        await page.click(`nav a:has-text('${place}')`);
        await settled(page);
        if (await page.evaluate(() => document.querySelector(".problem")?.textContent)) wrong(`${prefix} ${place}: says there is a problem`);
      }
      if (!page.url().startsWith(`${origin}${prefix}/ui/w/1/spec`)) wrong(`the address is ${page.url()}`);
      await page.reload();
      await page.waitForSelector("pre.spec");
      await page.goBack();
      await page.waitForSelector(".timeline canvas");
      await context.close();
    }
    proxy.closeAllConnections();
    proxy.close();
  },

  /** The graph: other groups, zoom, the small map, a family that opens, what is saved; and the brush of the timeline. */
  async graph() {
    const page = await open(await browser.newContext({ viewport: { width: 900, height: 600 } }));
    await page.goto(task.link);
    await settled(page);
    await page.goto(address("w/ID/graph"));
    await page.waitForSelector(".node");
    if (await page.isVisible(".minimap")) wrong("a small map of what is seen whole");
    await page.selectOption("select[aria-label='A node is']", "job");
    await page.waitForURL("**/graph?group=job");
    await page.waitForFunction((n) => document.querySelectorAll(".node").length === n, task.jobs);
    for (let i = 0; i < 8; i++) await page.click("button[aria-label='Zoom in']");
    await page.waitForSelector(".minimap:not([hidden])");
    const before = await page.evaluate(() => document.querySelector(".graph").scrollLeft);
    const map = await page.locator(".minimap").boundingBox();
    await page.mouse.click(map.x + 3, map.y + map.height / 2);
    await page.waitForFunction((old) => document.querySelector(".graph").scrollLeft < old, before);
    await page.selectOption("select[aria-label='A node is']", "pattern");
    await page.fill("input[aria-label='Pattern with one capture']", "^(train)_.*$");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".node[aria-label^='train: ']");
    await page.fill("input[aria-label='Pattern with one capture']", "^(train");
    task.tolerate = true;
    await page.keyboard.press("Enter");
    await page.waitForSelector(".problem:has-text('unclosed group')");
    await page.goBack();
    await page.waitForSelector(".node[aria-label^='train: ']");
    await page.goto(address("w/ID/graph"));
    task.tolerate = false;
    const saved = page.waitForEvent("download");
    await page.click("button:has-text('SVG')");
    const text = readFileSync(await (await saved).path(), "utf8");
    if (!text.startsWith("<svg") || !text.includes("train")) wrong("the SVG is " + text.slice(0, 200));
    await page.focus(".node[aria-label^='train: ']");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/graph?open=*");
    await page.waitForFunction(() => document.querySelector("h1").textContent === "train");
    await page.goto(address("w/ID/timeline"));
    await page.waitForFunction(() => document.querySelector("canvas")?.dataset.row);
    const box = await page.locator(".timeline canvas").boundingBox();
    const drag = async (from, to, y) => { await page.mouse.move(box.x + from, box.y + y); await page.mouse.down(); await page.mouse.move(box.x + to, box.y + y, { steps: 4 }); await page.mouse.up(); };
    await drag(300, 500, 20);
    await page.waitForSelector(".chosen:has-text('Selected')");
    await page.waitForURL("**&from=*&until=*");
    // The address has whole milliseconds.
    const told = async () => (await page.textContent(".chosen")).replace(/ \(.*?\)|, [\d.]+ at once.*/g, "");
    const chosen = await told();
    await page.reload();
    await page.waitForSelector(".chosen:has-text('Selected')");
    if (await told() !== chosen) wrong(`the span was "${chosen}" and is "${await told()}"`);
    await drag(400, 401, 20);
    await page.waitForSelector(".chosen", { state: "hidden" });
    await page.selectOption("select[aria-label='Rows']", "family");
    await page.check("label:has-text('squeeze') input");
    await page.waitForURL("**/timeline?rows=family");
    const trace = page.waitForEvent("download");
    await page.click("button:has-text('Trace')");
    const bars = JSON.parse(readFileSync(await (await trace).path(), "utf8")).traceEvents;
    if (!bars.some((bar) => bar.cat === "train" && bar.args.state === "failed")) wrong("the trace has no failed attempt");
    // Around one job, nearer and in the full window.
    await page.goto(address("w/ID/graph?focus=JOB"));
    await page.waitForSelector(".node");
    const near = await page.evaluate(() => document.querySelectorAll(".node").length);
    await page.selectOption("select[aria-label='Steps away']", "1");
    await page.waitForURL("**&hops=1");
    await page.waitForFunction((n) => { const now = document.querySelectorAll(".node").length; return now > 1 && now < n; }, near);
    await page.click("button[aria-label='Full window']");
    await page.waitForFunction(() => document.fullscreenElement && document.querySelector(".graph").clientHeight > innerHeight - 20);
    await page.goto(address("w/ID/events?q=started"));
    await page.waitForSelector(".eventlist tbody tr");
    if (await page.inputValue("input[aria-label='Filter events']") !== "started") wrong("the filter of the events is lost");
  },

  /** Budgets of time on many jobs. */
  async large() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 720 } }));
    await page.goto(task.link);
    await settled(page);
    const figures = {};
    /** From a click to what it shows, three times after one that fills the server's memory; the median counts. */
    const timed = async (name, most, prepare, work) => {
      const took = [];
      for (let i = 0; i < 4; i++) {
        await prepare();
        const begin = Date.now();
        await work();
        if (i) took.push(Date.now() - begin);
      }
      figures[name] = took.sort((x, y) => x - y)[1];
      if (figures[name] > most) wrong(`${name} took ${took.join(", ")} ms, the budget is ${most} ms`);
    };
    const overview = async () => { await page.goto(address("w/ID")); await page.waitForSelector(".families tbody tr"); };
    await timed("overview", task.budgets.overview, async () => { await page.goto(address("")); await settled(page); }, overview);
    await timed("first rows", task.budgets.rows, overview, async () => { await page.click("nav a:has-text('Jobs')"); await page.waitForSelector(".tspace .badge"); });
    const shows = (wanted) => page.waitForFunction((n) => document.querySelector(".actionbar [role=status]")?.textContent === n, wanted);
    const filter = async (text, wanted) => { await page.fill("#filter", text); await shows(wanted); };
    await timed("filter", task.budgets.filter, () => filter("", task.wanted.all), () => filter("name~77$", task.wanted.some));
    await filter("", task.wanted.all);
    // By family first; the large one opens into its jobs.
    const closed = await page.evaluate(() => [...document.querySelectorAll(".tspace .tr")].map((row) => row.textContent));
    if (closed.length !== 2 || !closed[1].includes("work100,000 jobs")) wrong(`the families are ${JSON.stringify(closed)}`);
    const family = page.locator("button[aria-expanded]", { hasText: "work" });
    await timed("family opens", task.budgets.rows, async () => { if (await family.getAttribute("aria-expanded") === "true") await family.click(); await page.waitForFunction(() => !document.querySelector(".tspace .badge")); }, async () => { await family.click(); await page.waitForSelector(".tspace .badge"); });
    const rowsThere = () => page.waitForFunction(() => { const rows = document.querySelectorAll(".tspace .tr"); return rows.length && ![...rows].some((row) => row.querySelector(".wait")); });
    let to = 0;
    await timed("scroll", task.budgets.scroll, rowsThere, async () => {
      to += 0.17;
      await page.evaluate((share) => { const body = document.querySelector(".tbody"); body.scrollTop = body.scrollHeight * share; }, to);
      await rowsThere();
    });
    const rows = await page.evaluate(() => document.querySelectorAll(".tspace .tr").length);
    if (rows > 80) wrong(`${rows} rows in the document`);
    await timed("first timeline picture", task.budgets.timeline, overview, async () => { await page.click("nav a:has-text('Timeline')"); await page.waitForFunction(() => document.querySelector("canvas")?.dataset.row); });
    // All bars are in sight and move with the pointer.
    figures["frames/s while panning"] = await page.evaluate(async () => {
      const canvas = document.querySelector("canvas");
      const spot = canvas.getBoundingClientRect();
      const move = (type, x, more) => canvas.dispatchEvent(new PointerEvent(type, { clientX: spot.left + x, clientY: spot.top + 120, pointerId: 1, buttons: 1, bubbles: true, ...more }));
      canvas.setPointerCapture = () => {};
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "w" }));
      await new Promise((done) => requestAnimationFrame(done));
      move("pointerdown", 600);
      let frames = 0;
      const begin = performance.now();
      while (performance.now() - begin < 2000) {
        move("pointermove", 600 + (frames % 2 ? 12 : -12));
        await new Promise((done) => requestAnimationFrame(done));
        frames++;
      }
      const rate = frames / ((performance.now() - begin) / 1000);
      move("pointerup", 600);
      return Math.round(rate);
    });
    if (figures["frames/s while panning"] < task.budgets.frames) wrong(`${figures["frames/s while panning"]} frames a second while panning`);
    figures.nodes = 0;
    for (const place of PLACES.filter((one) => !one.includes("group=job") && one !== "j/JOB")) {
      await page.goto(address(place));
      await settled(page);
      const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
      figures.nodes = Math.max(figures.nodes, nodes);
      if (nodes > 2000) wrong(`${place}: ${nodes} nodes`);
      if (await page.evaluate(() => document.querySelector(".problem")?.textContent)) wrong(`${place}: says there is a problem`);
    }
    // The jobs of a family as cells, and too many of them as nodes.
    await page.goto(address("w/ID/graph?open=1"));
    await page.waitForSelector(".cellbox canvas");
    if (!(await page.textContent(".row [role=status]")).includes("1 to 2,000 of 100,000 jobs")) wrong("the cells are " + await page.textContent(".row [role=status]"));
    await page.click("text=next →");
    await page.waitForURL("**offset=2000");
    task.tolerate = true;
    await page.goto(address("w/ID/graph?group=job"));
    await page.waitForSelector(".problem:has-text('more than 10000')");
    console.log("FIGURES " + JSON.stringify(figures));
  },

  /** A timeline of more attempts than are sent one by one: drawn together, and one by one in a span. */
  async picture() {
    const page = await open(await browser.newContext({ viewport: { width: 1280, height: 720 } }));
    await page.goto(task.link);
    await settled(page);
    const took = [];
    for (let i = 0; i < 4; i++) {
      await page.goto(address("w/ID"));
      await page.waitForSelector(".families tbody tr");
      const begin = Date.now();
      await page.click("nav a:has-text('Timeline')");
      await page.waitForFunction(() => document.querySelector("canvas")?.dataset.row);
      took.push(Date.now() - begin);
    }
    const median = took.slice(1).sort((a, b) => a - b)[1];
    if (median > task.budgets.timeline) wrong(`the picture took ${took.join(", ")} ms, the budget is ${task.budgets.timeline} ms`);
    const says = (text) => page.waitForFunction((part) => document.querySelector("h1 + [role=status]")?.textContent.includes(part), text);
    await says("400,004 attempts (narrow ones drawn together)");
    const box = await page.locator(".timeline canvas").boundingBox();
    const y = box.y + 20;
    await page.mouse.move(box.x + 400, y);
    await page.mouse.down();
    await page.mouse.move(box.x + 450, y, { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction(() => /^\d[\d,]* attempts on 8 runners$/.test(document.querySelector("h1 + [role=status]")?.textContent || ""), null, { timeout: 30000 });
    await page.waitForSelector(".chosen:has-text('Selected')");
    const some = Number((await page.textContent("h1 + [role=status]")).split(" ")[0].replaceAll(",", ""));
    if (!(some > 5000 && some < 60000)) wrong(`${some} attempts in a twentieth`);
    await page.click("button[aria-label='Show all']");
    await says("400,004 attempts (narrow ones drawn together)");
    await page.selectOption("select[aria-label='Rows']", "family");
    await says("400,004 attempts (narrow ones drawn together)");
    await page.goto(address("w/ID/resources"));
    await page.waitForSelector("h2:has-text('Use over time')");
    console.log("FIGURES " + JSON.stringify({ "first picture of 400,000 attempts": median, "the same at first": took[0] }));
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
// The test holds the other end of standard input until this process has ended.
process.stdin.destroy();

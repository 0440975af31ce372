// Takes the pictures of docs/page.md: every place, one theme on a wide window and the other on a phone. Called by
// `scripts/page-shots` with a JSON object: the link, the directory of the packages, ids, and where to put the pictures.
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const task = JSON.parse(process.argv[2]);
const { chromium } = createRequire(task.lab + "/npm/node_modules/")("playwright-core");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--headless", "--no-sandbox", "--disable-gpu"] });
const origin = new URL(task.link).origin;
const w = `w/${task.workflow}`;
const PLACES = [["workflows", ""], ["overview", `w/${task.running}`], ["jobs", `${w}/jobs`], ["failures", `${w}/failures`], ["graph", `${w}/graph`], ["timeline", `${w}/timeline`], ["resources", `${w}/resources`], ["nodes", `w/${task.running}/nodes`], ["events", `${w}/events`], ["data", `${w}/data`], ["spec", `${w}/spec`], ["job", `j/${task.job}`]];
/** What shows that a place has its data. */
const FULL = { workflows: "article.card", overview: ".families tbody tr", jobs: ".tspace .badge", failures: ".failure", graph: ".node", resources: "article.card", nodes: "tbody tr", events: "tbody tr", job: ".line" };
let session = null;

/** Chromium makes a small file of a picture. */
const packer = await (await browser.newContext()).newPage();
const packed = (png) => packer.evaluate(async (text) => {
  const picture = await createImageBitmap(await (await fetch("data:image/png;base64," + text)).blob());
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  canvas.getContext("2d").drawImage(picture, 0, 0);
  const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality: 0.55 })).arrayBuffer());
  let out = "";
  for (const byte of bytes) out += String.fromCharCode(byte);
  return btoa(out);
}, png.toString("base64"));

for (const [i, [name, place]] of PLACES.entries()) {
  for (const [scheme, width, height] of [[i % 2 ? "dark" : "light", 1280, 720], [i % 2 ? "light" : "dark", 390, 844]]) {
    const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height } });
    if (session) await context.addInitScript((kept) => { for (const [k, v] of Object.entries(kept)) sessionStorage.setItem(k, v); }, session);
    const page = await context.newPage();
    if (!session) {
      await page.goto(task.link);
      await page.waitForSelector("main .place > *");
      session = await page.evaluate(() => ({ ...sessionStorage }));
    }
    await page.goto(`${origin}/ui/${place}`);
    await page.waitForSelector("main .place > *");
    await page.waitForFunction(() => !document.querySelector(".loading"));
    await page.waitForSelector(FULL[name] || "main .place > *");
    if (name === "timeline") {
      await page.waitForFunction(() => document.querySelector("canvas")?.dataset.row);
      const box = await page.locator(".timeline canvas").boundingBox();
      const at = (share) => box.x + 120 + (box.width - 120) * share;
      await page.mouse.move(at(0.18), box.y + 20);
      await page.mouse.down();
      await page.mouse.move(at(0.8), box.y + 20, { steps: 3 });
      await page.mouse.up();
      await page.mouse.move(0, 0);
    }
    // The pulse and pictures of it: a few frames.
    await page.waitForTimeout(name === "overview" ? 4000 : 900);
    const png = await page.screenshot();
    writeFileSync(`${task.out}/${name}-${scheme}-${width}.webp`, Buffer.from(await packed(png), "base64"));
    if (task.look) writeFileSync(`${task.look}/${name}-${scheme}-${width}.png`, png);
    await context.close();
  }
}
await browser.close();

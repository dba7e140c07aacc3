// Builds the page into one script, one style sheet and index.html: node build.mjs OUT_FOLDER
import { build } from "esbuild";
import { copyFile, mkdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import { compile, compileModule } from "svelte/compiler";

const out = process.argv[2];
const here = path.dirname(new URL(import.meta.url).pathname);
const BYTES_MAX = 200_000;

const svelte = {
  name: "svelte",
  setup(builder) {
    builder.onLoad({ filter: /\.svelte$/ }, async ({ path: file }) => {
      const { js, css, warnings } = compile(await readFile(file, "utf8"), { filename: file, css: "external" });
      if (css?.code) throw new Error(`${file}: styles belong into style.css`);
      return { contents: js.code, warnings: warnings.map((each) => ({ text: `${file}: ${each.message}` })) };
    });
    builder.onLoad({ filter: /\.svelte\.js$/ }, async ({ path: file }) => ({
      contents: compileModule(await readFile(file, "utf8"), { filename: file }).js.code,
    }));
  },
};

// What the page does not use of its libraries. A pattern that no longer matches shows in the size below.
const UNUSED = [
  // Svelte asks a module whether it is developed with; said in each file, its long messages are left out.
  [/node_modules\/svelte\/src\/.*\.js$/, /import \{([^}]*)\} from 'esm-env';/g, (_, names) => names.replace(/\w+/g, (each) => `${each} = ${each === "BROWSER"}`).replace(/^/, "const ") + ";"],
  [/custom-element\.js$/, /if \(typeof HTMLElement === 'function'\)/, () => "if (false)"],
  // One chart of two straight lines: no other shapes, no joined tables, no dates.
  [/uPlot\.esm\.js$/, /\(paths\.(stepped|bars|spline)\s*= \w+\);|uPlot\.(join|fmtDate|tzDate|rangeLog|rangeAsinh)\s*= \w+;/g, () => ""],
];
const lean = {
  name: "lean",
  setup(builder) {
    builder.onLoad({ filter: /node_modules\/(svelte\/src|uplot)\/.*\.js$/ }, async ({ path: file }) => ({
      contents: UNUSED.filter(([files]) => files.test(file)).reduce((text, [, pattern, by]) => text.replace(pattern, by), await readFile(file, "utf8")),
    }));
  },
};

await mkdir(out, { recursive: true });
const result = await build({
  entryPoints: { app: path.join(here, "src/main.js"), style: path.join(here, "src/style.css") },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  conditions: ["svelte", "browser"],
  legalComments: "none",
  plugins: [svelte, lean],
});
if (result.warnings.length) process.exitCode = 1;
await copyFile(path.join(here, "src/index.html"), path.join(out, "index.html"));
let bytes = 0;
for (const name of ["app.js", "style.css", "index.html"]) bytes += (await stat(path.join(out, name))).size;
console.log(`page: ${bytes} bytes in ${out}`);
if (bytes > BYTES_MAX) {
  console.error(`page: more than ${BYTES_MAX} bytes`);
  process.exitCode = 1;
}

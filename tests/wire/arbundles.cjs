// Reads items as hex, one a line, and prints what arbundles makes of each: its id, or "invalid".
const { DataItem } = require(process.argv[2] + "/node_modules/@dha-team/arbundles/build/node/cjs/src/DataItem.js");
const lines = require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean);
(async () => {
  for (const line of lines) {
    const raw = Buffer.from(line, "hex");
    const isValid = await DataItem.verify(raw).catch(() => false);
    console.log(isValid ? new DataItem(raw).id : "invalid");
  }
})();

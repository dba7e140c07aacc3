// One peer's queue on Node: `node queue_peers.mjs PEER DSN ONE BULK`, run where the peers are installed.
// Prints as JSON how many jobs a second are taken in one by one, taken in by lots of 1000, and done by a worker whose
// work is to do nothing.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.cwd() + "/"));
const LOT = 1000;
const [peer, dsn, one, bulk] = [process.argv[2], process.argv[3], Number(process.argv[4]), Number(process.argv[5])];
const since = (began) => (performance.now() - began) / 1000;

async function pgBoss() {
  const library = require("pg-boss");
  const PgBoss = library.PgBoss ?? library.default ?? library;
  const boss = new PgBoss({ connectionString: dsn, max: 8 });
  boss.on("error", (fault) => console.error(fault));
  await boss.start();
  await boss.createQueue("work");
  let began = performance.now();
  for (let n = 0; n < one; n++) await boss.send("work", { payload: "x" });
  const single = one / since(began);
  began = performance.now();
  for (let n = 0; n < bulk; n += LOT) {
    await boss.insert(Array.from({ length: LOT }, () => ({ name: "work", data: { payload: "x" } })));
  }
  const many = bulk / since(began);
  began = performance.now();
  for (let done = 0; done < one + bulk; ) {
    const jobs = await boss.fetch("work", { batchSize: LOT });
    await boss.complete("work", jobs.map((job) => job.id));
    done += jobs.length;
  }
  const drain = (one + bulk) / since(began);
  await boss.stop({ graceful: false });
  return { one: single, bulk: many, drain };
}

async function graphileWorker() {
  const { Logger, makeWorkerUtils, run } = require("graphile-worker");
  const logger = new Logger(() => () => undefined);
  const utils = await makeWorkerUtils({ connectionString: dsn, logger });
  await utils.migrate();
  let began = performance.now();
  for (let n = 0; n < one; n++) await utils.addJob("work", { payload: "x" });
  const single = one / since(began);
  began = performance.now();
  for (let n = 0; n < bulk; n += LOT) {
    await utils.addJobs(Array.from({ length: LOT }, () => ({ identifier: "work", payload: { payload: "x" } })));
  }
  const many = bulk / since(began);
  let done = 0;
  let finish;
  const all = new Promise((resolve) => (finish = resolve));
  began = performance.now();
  const preset = { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } };
  const runner = await run({
    connectionString: dsn,
    concurrency: 24,
    noHandleSignals: true,
    maxPoolSize: 25,
    logger,
    preset,
    taskList: { work: () => void (++done === one + bulk && finish()) },
  });
  await all;
  const drain = (one + bulk) / since(began);
  await runner.stop();
  await utils.release();
  return { one: single, bulk: many, drain };
}

const found = await { "pg-boss": pgBoss, "graphile-worker": graphileWorker }[peer]();
console.log(JSON.stringify(found));
process.exit(0);

// One peer's queue on Node: `node node_queues.mjs PEER DSN ONE BULK LEASES`, run where the peers are installed.
// Prints what bench/queue/peers/contract.py says, as one line of JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.cwd() + "/"));
const BATCH = 1000;
const CLIENTS = [1, 16, 64];
const REST_MS = 20;
const [peer, dsn] = [process.argv[2], process.argv[3]];
const [one, bulk, leases] = process.argv.slice(4).map(Number);
const since = (began) => (performance.now() - began) / 1000;
const share = (clients) => Math.max(clients, Math.floor(Math.floor((one * Math.min(clients, 16)) / 16) / clients) * clients);
const total = CLIENTS.map((clients) => share(clients) + clients).reduce((sum, each) => sum + each) + bulk;

async function singly(enqueue) {
  const found = {};
  for (const clients of CLIENTS) {
    const client = async (jobs) => {
      for (let n = 0; n < jobs; n++) await enqueue();
    };
    const together = (jobs) => Promise.all(Array.from({ length: clients }, () => client(jobs)));
    await together(1); // the first one may have to connect
    const began = performance.now();
    await together(share(clients) / clients);
    found[clients] = share(clients) / since(began);
  }
  return found;
}

async function inBulk(enqueue) {
  const began = performance.now();
  for (let n = 0; n < bulk; n += BATCH) await enqueue();
  return bulk / since(began);
}

async function taken(enqueue, wait) {
  const waits = [];
  for (let n = 0; n < leases; n++) {
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    const waiting = wait();
    const began = performance.now();
    await enqueue();
    await waiting;
    waits.push(performance.now() - began);
  }
  return waits;
}

async function pgBoss() {
  const library = require("pg-boss");
  const PgBoss = library.PgBoss ?? library.default ?? library;
  const boss = new PgBoss({ connectionString: dsn, max: 64 });
  boss.on("error", (fault) => console.error(fault));
  await boss.start();
  await boss.createQueue("work");
  const enqueue = () => boss.send("work", { payload: "x" });
  const single = await singly(enqueue);
  const jobs = Array.from({ length: BATCH }, () => ({ name: "work", data: { payload: "x" } }));
  const isNamed = boss.insert.length > 1;
  const many = await inBulk(() => (isNamed ? boss.insert("work", jobs) : boss.insert(jobs)));
  const began = performance.now();
  for (let done = 0; done < total; ) {
    const fetched = await boss.fetch("work", { batchSize: BATCH });
    await boss.complete("work", fetched.map((job) => job.id));
    done += fetched.length;
  }
  const drain = total / since(began);
  let finish;
  await boss.work("work", { pollingIntervalSeconds: 0.5 }, async () => finish());
  const waits = await taken(enqueue, () => new Promise((resolve) => (finish = resolve)));
  return { single, bulk: many, drain, lease_ms: waits };
}

async function graphileWorker() {
  const { Logger, makeWorkerUtils, run } = require("graphile-worker");
  const logger = new Logger(() => () => undefined);
  const utils = await makeWorkerUtils({ connectionString: dsn, logger, maxPoolSize: 64 });
  await utils.migrate();
  const enqueue = () => utils.addJob("work", { payload: "x" });
  const single = await singly(enqueue);
  const jobs = Array.from({ length: BATCH }, () => ({ identifier: "work", payload: { payload: "x" } }));
  const many = await inBulk(() => utils.addJobs(jobs));
  let done = 0;
  let finish;
  const all = new Promise((resolve) => (finish = resolve));
  const began = performance.now();
  const preset = { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } };
  const options = { connectionString: dsn, concurrency: 24, noHandleSignals: true, maxPoolSize: 25, logger };
  const draining = await run({ ...options, preset, taskList: { work: () => void (++done === total && finish()) } });
  await all;
  const drain = total / since(began);
  await draining.stop();
  const waiting = await run({ ...options, taskList: { work: () => finish() } }); // without a local queue, which polls
  const waits = await taken(enqueue, () => new Promise((resolve) => (finish = resolve)));
  await waiting.stop();
  await utils.release();
  return { single, bulk: many, drain, lease_ms: waits };
}

const found = await { "pg-boss": pgBoss, "graphile-worker": graphileWorker }[peer]();
console.log(JSON.stringify(found));
process.exit(0);

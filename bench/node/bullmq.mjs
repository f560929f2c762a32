// BullMQ for the bench: one process that does what it is told, a line of JSON in, a line of JSON out.
//   node bullmq.mjs redis://127.0.0.1:6379/0

import readline from "node:readline";
import { performance } from "node:perf_hooks";
import { Queue, Worker } from "bullmq";

const url = new URL(process.argv[2]);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const options = { removeOnComplete: true, removeOnFail: true };
const queue = new Queue("bench", { connection, defaultJobOptions: options });
let worker;

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const jobs = (payload, count) => Array.from({ length: count }, () => ({ name: "noop", data: payload }));

async function addOneByOne({ payload, count }) {
  if (payload.sent !== undefined) payload.sent = Number(process.hrtime.bigint()); // the clock starts in here
  for (let n = 0; n < count; n++) await queue.add("noop", payload);
}

async function addTogether({ payload, count, tasks }) {
  await Promise.all(Array.from({ length: tasks }, () => addOneByOne({ payload, count: count / tasks })));
}

// All jobs that wait: from the first run of the handler to the last, with the processor time of this process.
function drain({ count, concurrency }) {
  return new Promise((resolve, reject) => {
    let runs = 0;
    let start, cpu;
    const handler = async () => {
      if (++runs === 1) [start, cpu] = [performance.now(), process.cpuUsage()];
      if (runs === count) {
        const seconds = (performance.now() - start) / 1e3;
        const { user, system } = process.cpuUsage(cpu);
        worker.close().then(() => resolve({ runs, seconds, cpu: (user + system) / 1e6 }), reject);
      }
    };
    worker = new Worker("bench", handler, { connection, concurrency });
    worker.on("error", reject);
  });
}

// A worker that tells of each job when its handler began, by the clock that all processes share.
async function work({ concurrency, limit }) {
  const limiter = limit ? { max: limit[0], duration: limit[1] * 1e3 } : undefined;
  const handler = async (job) => say({ payload: job.data, began: Number(process.hrtime.bigint()) });
  worker = new Worker("bench", handler, { connection, concurrency, limiter });
  await worker.waitUntilReady();
}

const commands = {
  open: () => queue.waitUntilReady(),
  add: addOneByOne,
  together: addTogether,
  bulk: ({ payload, count }) => queue.addBulk(jobs(payload, count)),
  drain,
  work,
  stop: async () => {
    const { user, system } = process.cpuUsage();
    await worker.close();
    return { cpu: (user + system) / 1e6 };
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const answer = await commands[command.do](command);
  say({ done: command.do, ...(command.do === "drain" || command.do === "stop" ? answer : {}) });
}
process.exit(0);

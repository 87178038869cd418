// node-redlock under the workloads of `compare-bench --peers`.
//
// The orders and answers are those of the other peers; peers/rust/common/src/lib.rs describes them.

const Redis = require("ioredis");
const { default: Redlock } = require("redlock");
// Its package does not tell its version; what is pinned is what is installed.
const version = require("./package.json").dependencies.redlock;

const LEASE = 10000;
const SETUP =
  "leases of 10 s without renewal; it asks again every 200 ms with a jitter of 200 ms, as it comes, but without an end";
const LACKS = "fencing tokens; order";
const AHEAD = BigInt(process.env.PEER_CLOCK_AHEAD);
const WARM_UP = 1000000000;

// The boot clock, which all processes of a host share.
const now = () => process.hrtime.bigint() + AHEAD;
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
// Large numbers are exact below 2^53, which is 104 days of a machine that is up.
const plain = (nanos) => Number(nanos);

// Each task on a name of its own, again and again.
async function cycles(redlock, name, tasks, length) {
  const latencies = [];
  const began = now();
  const one = async (task) => {
    const first = now();
    for (;;) {
      const start = now();
      if (start - first >= BigInt(length)) return;
      const lock = await redlock.acquire([`${name}/${task}`], LEASE);
      await lock.release();
      latencies.push(plain(now() - start));
    }
  };
  await Promise.all([...Array(tasks).keys()].map(one));
  return { latencies_ns: latencies, elapsed_ns: plain(now() - began) };
}

// All tasks on one name. A turn is [task, asked, acquired, released].
async function contend(redlock, name, tasks, hold, until) {
  const turns = [];
  const one = async (task) => {
    for (;;) {
      const asked = now();
      if (asked >= BigInt(until)) return;
      const lock = await redlock.acquire([name], LEASE);
      const acquired = now();
      if (hold > 0) await sleep(hold / 1e6);
      const released = now();
      await lock.release();
      turns.push([task, asked, acquired, released].map(Number));
    }
  };
  await Promise.all([...Array(tasks).keys()].map(one));
  return { turns };
}

const say = (answer) => console.log(JSON.stringify(answer));

async function serve() {
  const clients = process.env.PEER_URLS.split(",").map((url) => new Redis(url));
  const redlock = new Redlock(clients, { retryCount: -1 });
  redlock.on("error", () => {});
  await cycles(redlock, `warm-${process.pid}`, 1, WARM_UP);
  say({ name: "node-redlock", version, setup: SETUP, lacks: LACKS, now: plain(now()) });
  for await (const order of require("readline").createInterface({ input: process.stdin })) {
    const [what, name, ...numbers] = order.split(" ");
    // What is longer than a number can tell exactly is a time, and stays text.
    if (what === "cycles") say(await cycles(redlock, `compare_peers/${name}`, Number(numbers[0]), numbers[1]));
    else say(await contend(redlock, `compare_peers/${name}`, Number(numbers[0]), Number(numbers[1]), numbers[2]));
  }
  clients.forEach((client) => client.disconnect());
}

serve().catch((error) => {
  say({ error: String(error) });
  process.exit(1);
});

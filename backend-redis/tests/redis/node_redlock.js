// The lock of node-redlock: a command comes in on each line, an answer goes out.

const Redis = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

const clients = process.argv.slice(2).map((address) => new Redis(`redis://${address}`));
const redlock = new Redlock(clients, { retryCount: 0 });
redlock.on("error", () => {});
const locks = {};

async function answer(command, name, life) {
  try {
    if (command === "try") locks[name] = await redlock.acquire([name], Number(life));
    if (command === "wait") {
      locks[name] = await redlock.acquire([name], Number(life), { retryCount: 500, retryDelay: 10, retryJitter: 5 });
    }
    if (command === "token") return locks[name].value;
    if (command === "release") await locks[name].release();
    if (command === "extend") locks[name] = await locks[name].extend(Number(life));
    return command === "release" || command === "extend" ? "done" : "yes";
  } catch (error) {
    if (!(error instanceof ExecutionError)) throw error;
    return command === "release" || command === "extend" ? "ExecutionError" : "no";
  }
}

async function main() {
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    console.log(await answer(...line.split(" ")));
  }
  clients.forEach((client) => client.disconnect());
}

main();

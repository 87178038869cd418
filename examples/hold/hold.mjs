#!/usr/bin/env node
// Works under a lock that `lockwell hold` keeps: node hold.mjs NAME STEPS

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

class NotObtained extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

class Lost extends Error {}

/** A lock that is held until `release`. */
class Lock {
  #keeper;
  #ended;
  #questions = [];
  #lost = new AbortController();

  /** Waits for the lock. */
  static async hold(name, ...options) {
    const lock = new Lock();
    const granted = new Promise((resolve) => lock.#questions.push(resolve));
    lock.#start(["hold", "--json", ...options, "--", name]);
    const told = await granted;
    if (told?.event !== "granted") {
      lock.#keeper.stdin.end();
      throw new NotObtained(told?.message ?? lock.lost.reason.message, (await lock.#ended) ?? 70);
    }
    lock.token = told.token;
    lock.holdId = told.hold_id;
    return lock;
  }

  #start(args) {
    // In a process group of its own, so that Ctrl-C ends the work, and the work then ends the hold.
    this.#keeper = spawn("lockwell", args, { stdio: ["pipe", "pipe", "inherit"], detached: true });
    // A lockwell that has ended does not read: the end of its output says so.
    this.#keeper.stdin.on("error", () => {});
    this.#ended = new Promise((resolve) => {
      this.#keeper.on("close", (status) => resolve(status));
      this.#keeper.on("error", (error) => {
        this.#lose(error.message);
        resolve(70);
      });
    });
    createInterface({ input: this.#keeper.stdout })
      .on("line", (line) => this.#read(JSON.parse(line)))
      // At the end of the output the lock is not held any more, whatever the last line was.
      .on("close", () => this.#lose("lockwell has ended"));
  }

  #read(told) {
    if (["granted", "held", "refused"].includes(told.event)) {
      this.#questions.shift()?.(told);
    } else if (told.event === "lost") {
      this.#lose(told.message);
    }
  }

  #lose(why) {
    this.#lost.abort(new Lost(why));
    this.#questions.splice(0).forEach((answer) => answer(undefined));
  }

  /** A signal that is aborted when the lock is lost: pass it on to `fetch` and the like. */
  get lost() {
    return this.#lost.signal;
  }

  /** For how many milliseconds the lock is held at least, from now. Throws Lost. */
  async check() {
    this.lost.throwIfAborted();
    const asked = performance.now(); // before the question: the answer may be late
    const answer = new Promise((resolve) => this.#questions.push(resolve));
    this.#keeper.stdin.write("check\n");
    const told = await answer;
    this.lost.throwIfAborted();
    return asked + told.valid_ms - performance.now();
  }

  /** Frees the lock. Throws Lost if it was not held until now. */
  async release() {
    this.#keeper.stdin.end("release\n");
    if ((await this.#ended) !== 0) {
      throw this.lost.reason;
    }
  }
}

async function work(lock, steps) {
  console.log(`granted with token ${lock.token}`);
  for (let step = 1; step <= steps; step++) {
    if ((await lock.check()) < 200) {
      throw new Lost("the time that is left is too short for a step");
    }
    // The work of a step, which ends when the lock is lost.
    await pause(100, undefined, { signal: lock.lost }).catch(() => lock.lost.throwIfAborted());
    console.log(`step ${step} of ${steps}`);
  }
}

async function main(name, steps) {
  const lock = await Lock.hold(name, "--wait", "5s");
  let worked = false;
  try {
    await work(lock, steps);
    worked = true;
  } finally {
    // An error of the work is more important than a loss after it.
    await lock.release().catch((error) => {
      if (worked) throw error;
    });
  }
  console.log("released");
}

try {
  await main(process.argv[2], Number(process.argv[3]));
} catch (error) {
  if (error instanceof NotObtained) {
    console.log(`not obtained: ${error.message}`);
    process.exitCode = error.status;
  } else if (error instanceof Lost) {
    console.log(`lost: ${error.message}`);
    process.exitCode = 76;
  } else {
    throw error;
  }
}

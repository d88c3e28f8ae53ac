// The driver of the suite in internal/test/clientsuite: it runs guarded work as JSON lines on stdin tell it, and tells on stdout what
// happens.
import { openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";

import { Client, LeaseLost, NotAcquired, Problem, type Lease, type Lock, type LeaseOptions } from "../src/lockkeeper.js";

interface WireLock {
  lock: string;
  ns?: string;
  mode?: "exclusive" | "shared" | "semaphore";
  permits?: number;
  limit?: number;
}

interface Command {
  id: number;
  do: "lock" | "cancel" | "finish" | "fail";
  locks: WireLock[];
  url?: string;
  token?: string;
  token_file?: string;
  ttl_ms?: number | null;
  wait_ms?: number | null;
  margin_ms?: number | null;
  lock_delay_ms?: number | null;
  owner?: string;
  metadata?: string;
  reason?: string;
  at_least_ms?: number;
  once_per_ms?: number;
  period?: string;
  done_on?: "release";
  work: { log?: string; step_ms?: number; for_ms?: number | null };
}

/** A call that runs. */
class Run {
  readonly canceled = new AbortController();
  finished = false;
  failed = false;
}

const runs = new Map<number, Run>();
let shared: Client | undefined;

const monotonic = (): bigint => process.hrtime.bigint(); // CLOCK_MONOTONIC, in nanoseconds
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** t is written as the digits that it has: a number would be rounded. */
function tell(id: number, event: string, members: object = {}, t?: bigint): void {
  const line = JSON.stringify({ id, event, ...members });
  writeSync(1, (t === undefined ? line : `${line.slice(0, -1)},"t":${t}}`) + "\n");
}

async function work(command: Command, run: Run, lease: Lease, signal: AbortSignal): Promise<void> {
  const { log, step_ms: step = 10, for_ms: time } = command.work;
  const file = log ? openSync(log, "a") : undefined;
  const write = (what: string) => {
    if (file !== undefined) writeSync(file, `${monotonic()} ${process.pid} ${command.id} ${lease.fence} ${what}\n`);
  };
  tell(command.id, "started", { fence: lease.fence, lease_id: lease.id }, monotonic());
  write("start");
  const end = monotonic() + BigInt(time ?? 0) * 1_000_000n;
  while (!run.finished && !run.failed && !(time != null && monotonic() >= end)) {
    if (signal.aborted || !lease.held) break;
    write("step");
    await pause(step);
  }
  write("end");
  tell(command.id, "stopped", {}, monotonic());
  if (run.failed) throw new Error("boom");
  if (!run.finished) signal.throwIfAborted();
}

/** Resolves with the members of the event that says how the call ended. */
async function lock(command: Command, run: Run): Promise<object> {
  const { id, url, token, token_file: tokenFile } = command;
  const client = url || token || tokenFile ? new Client({ urls: url, token, tokenFile }) : (shared ??= Client.fromEnv());
  const options: LeaseOptions = {
    ttlMs: command.ttl_ms ?? undefined,
    waitMs: command.wait_ms ?? undefined,
    marginMs: command.margin_ms ?? undefined,
    lockDelayMs: command.lock_delay_ms ?? undefined,
    owner: command.owner,
    metadata: command.metadata,
    reason: command.reason,
    atLeastMs: command.at_least_ms,
    signal: run.canceled.signal,
    onQueued: (position) => tell(id, "queued", { position }),
    onRevoke: ({ reason }) => tell(id, "revoke", { reason }),
  };
  const locks = command.locks.map((one): Lock => ({
    name: one.lock,
    namespace: one.ns || undefined,
    shared: one.mode === "shared" || undefined,
    permits: one.mode === "semaphore" ? (one.permits ?? 1) : undefined,
    limit: one.mode === "semaphore" ? one.limit : undefined,
  }));
  const [first] = locks;
  if (command.once_per_ms === undefined || !first) {
    const which = locks.length === 1 && first ? first : locks;
    await client.withLock(which, (lease, signal) => work(command, run, lease, signal), options);
    return {};
  }
  const once = { perMs: command.once_per_ms, period: command.period, doneOn: command.done_on };
  const { done } = await client.once(first, once, (lease, signal) => work(command, run, lease, signal), options);
  return done ? { already: true, period: done.period, by: done.by, done_at: done.at.toISOString() } : {};
}

/** The members of the event that says how a call failed. */
function failure(error: unknown, run: Run): object {
  if (error instanceof LeaseLost) {
    return { error: "LeaseLost", lease_id: error.leaseId, reason: error.reason, by: error.by, detail: error.detail };
  }
  if (error instanceof NotAcquired) {
    const holders = error.holders.map((h) => ({ owner: h.owner, lease_id: h.leaseId, fencing_token: h.fencingToken }));
    return { error: "NotAcquired", lock: error.lock, holders, queue_length: error.queueLength };
  }
  if (error instanceof Problem) {
    return { error: "Problem", status: error.status, code: error.code, field: error.field, detail: error.detail };
  }
  if (error === run.canceled.signal.reason) return { error: "Cancelled" };
  if (error instanceof TypeError || error instanceof RangeError) return { error: "Invalid", detail: error.message };
  if (error instanceof Error && error.message === "boom") return { error: "Work", detail: error.message };
  return { error: "Other", detail: String(error) };
}

function obey(command: Command): void {
  const run = runs.get(command.id);
  if (command.do !== "lock") {
    if (command.do === "cancel") run?.canceled.abort(new DOMException("canceled", "AbortError"));
    else if (run && command.do === "finish") run.finished = true;
    else if (run) run.failed = true;
    return;
  }
  const begun = new Run();
  runs.set(command.id, begun);
  void lock(command, begun)
    .then((how) => tell(command.id, "done", how), (error) => tell(command.id, "failed", failure(error, begun)))
    .finally(() => runs.delete(command.id));
}

createInterface({ input: process.stdin })
  .on("line", (line) => obey(JSON.parse(line) as Command))
  .on("close", () => {
    for (const run of runs.values()) run.canceled.abort(new DOMException("stdin was closed", "AbortError"));
  });

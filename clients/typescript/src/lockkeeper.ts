/**
 * Takes locks from a Lockkeeper gateway, and stops the work that they protect in time.
 *
 *     const client = Client.fromEnv(); // LOCKKEEPER_URL, LOCKKEEPER_TOKEN
 *     await client.withLock("report", (lease, signal) => writeReport({ fence: lease.fence, signal }));
 *
 * `signal` aborts before another client can hold the lock. Work that cannot pass it on calls `lease.throwIfLost()`
 * before each step. A process that stands still, or whose event loop is blocked, cannot stop its work: send
 * `lease.fence` to what the lock protects, and let that refuse lower ones.
 *
 * Durations are milliseconds. The file needs nothing but Node.js 18 or a browser of 2022, and may be copied.
 *
 * @module
 */
/// <reference lib="esnext.disposable" preserve="true" />

/** Which gateways a {@link Client} asks, and how. */
export interface ClientOptions {
  /**
   * Gateways of one fleet, such as `http://127.0.0.1:8080`, in Node.js also `unix:/run/x.sock`: a list, or a text with
   * commas. Without it: a page's own origin in a browser, elsewhere `http://127.0.0.1:8080`.
   */
  urls?: string | readonly string[] | undefined;
  /** The API token, sent with each acquire. */
  token?: string | undefined;
  /** A file that holds the API token, read for each acquire. Not in browsers. */
  tokenFile?: string | undefined;
  /** Sends the requests in place of the runtime's `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** A lock, and how it is taken: alone, together with other readers (`shared`), or some permits of a semaphore. */
export interface Lock {
  name: string;
  namespace?: string | undefined;
  shared?: boolean | undefined;
  /** Takes so many permits; 1 when there is a limit. */
  permits?: number | undefined;
  /** How many permits the lock has. Without it, as many as the gateway knows. */
  limit?: number | undefined;
}

/** One lock, or several that are taken at once or not at all. Their order does not matter. */
export type Locks = string | Lock | readonly (string | Lock)[];

/** Options of an acquire. */
export interface LeaseOptions {
  /** For so long others wait when this process dies: 30,000 unless given. A gateway's crash needs 15,000. */
  ttlMs?: number | undefined;
  /** Bounds the time in the queue. 0 tries. Without it the acquire waits until `signal` aborts. */
  waitMs?: number | undefined;
  /** How long before the end of its time the work is stopped: 1,000, or a fifth of a TTL below 5,000. */
  marginMs?: number | undefined;
  /** A label for people who look at the lock. */
  owner?: string | undefined;
  /** A text that every client can read at the lock, such as the address of a leader. */
  metadata?: string | undefined;
  /** What the lock is taken for, for people who look at it. */
  reason?: string | undefined;
  /** Keeps the lock from others for so long from the grant, whatever becomes of its holder: up to 7 days. */
  atLeastMs?: number | undefined;
  /** Keeps the lock free for so long after the lease, so that a holder that has not noticed its end can finish. */
  lockDelayMs?: number | undefined;
  /** Ends the wait, and leaves the queue. In `withLock` and `elect` it also aborts the signal of the work. */
  signal?: AbortSignal | undefined;
  /** Called once when the holder is asked to release. The work may go on until the lease is lost. */
  onRevoke?: ((asked: Revocation) => void) | undefined;
  /** Called with the place among the waiters, when the acquire enters the queue and when the place changes. */
  onQueued?: ((position: number) => void) | undefined;
}

/** How often the work of {@link Client.once} is done. */
export interface Once {
  /** The length of a period. */
  perMs: number;
  /** The name of the period, such as `2026-11-22`. Without it the gateway derives it from the time. */
  period?: string | undefined;
  /** What makes the period done: the grant, or (`release`) success, so that work that failed runs again. */
  doneOn?: "grant" | "release" | undefined;
}

/** The work of a period is done: by which owner, if the gateway tells, and when. */
export type Done = Readonly<{ lock: string; period: string; by: string; at: Date }>;

/** A holder is asked to release: why, by which administrator, and when the gateway ends the lease, if by force. */
export type Revocation = Readonly<{ reason: string; by: string; forceInMs: number | undefined }>;

/** The work under a lease. `signal` aborts when the lease is lost, and when the caller's own signal aborts. */
export type Work<T> = (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>;

/** Locks that are held. At the end of an `await using` block the lease is released. */
export interface Lease extends AsyncDisposable {
  /** Names the lease in logs and lists. It gives no right. */
  readonly id: string;
  /** The fencing token: higher than that of each holder before. Of several locks, their highest. */
  readonly fence: number;
  /** Aborts when the lease is lost, with a {@link LeaseLost} as its reason, and when it is released. */
  readonly signal: AbortSignal;
  /** Whether the work may go on now. It looks at the clock: it is right also when timers are late. */
  readonly held: boolean;
  /** The fencing token of one of several locks, `undefined` for a lock that is not among them. */
  fenceOf(lock: string, namespace?: string): number | undefined;
  /** Throws a {@link LeaseLost} when the lease is lost. For before each step that takes less than the margin. */
  throwIfLost(): void;
  /**
   * Gives the lock back; it may be called again. Rejects with a {@link LeaseLost} when the lease had ended before.
   * False when no gateway answered for 5 s: the lease then ends by itself, within its TTL.
   */
  release(): Promise<boolean>;
}

/** A holder of a lock. `leaseId` is empty when it locks in ZooKeeper itself; `fencingToken` may then be 0. */
export type Holder = Readonly<{ owner: string; leaseId: string; fencingToken: number }>;

/** The lease ended before its holder released it. `cause` is what the work threw after that, if something else. */
export class LeaseLost extends Error {
  override readonly name = "LeaseLost";
  declare readonly leaseId: string;
  /** The gateway's (`expired`, `revoked`, ...); `deadline`: not confirmed in time; `gone`: no gateway knows it. */
  declare readonly reason: string;
  /** Who ended it, when the gateway tells. */
  declare readonly by: string;
  /** A sentence for people. */
  declare readonly detail: string;

  constructor(leaseId: string, reason: string, by = "", detail = "") {
    super(`lockkeeper: lease ${leaseId} is lost: ${reason}${by && ` by ${by}`}${detail && ` (${detail})`}`);
    Object.assign(this, { leaseId, reason, by, detail });
  }
}

/** Others hold the lock, and the time for waiting is over. */
export class NotAcquired extends Error {
  override readonly name = "NotAcquired";
  declare readonly lock: string;
  /** As the gateway saw them last; may be empty. */
  declare readonly holders: readonly Holder[];
  declare readonly queueLength: number;
  /** The least time after which the answer can change; 0 when it is not known. */
  declare readonly retryAfterMs: number;

  constructor(lock: string, holders: readonly Holder[], queueLength: number, retryAfterMs: number) {
    const by = holders[0]?.owner;
    super(`lockkeeper: ${lock} is held${by ? ` by ${by}` : ""}, and ${queueLength} wait for it`);
    Object.assign(this, { lock, holders, queueLength, retryAfterMs });
  }
}

/** The gateway refuses the request. */
export class Problem extends Error {
  override readonly name = "Problem";
  declare readonly status: number;
  /** What programs go by (docs/errors.md); `unexpected_answer` when it was no gateway that answered. */
  declare readonly code: string;
  /** A sentence for people. */
  declare readonly detail: string;
  /** What is wrong in the request, if it is one field. */
  declare readonly field: string;
  /** Names the request in the gateway's log. */
  declare readonly requestId: string;
  /** The gateway's Retry-After, 0 without one. */
  declare readonly retryAfterMs: number;
  /** All that the gateway says. */
  declare readonly body: Readonly<object>;

  constructor(status: number, retryAfterMs: number, body: Readonly<object>) {
    const code = textIn(body, "code"), detail = textIn(body, "detail") || textIn(body, "title");
    super(`lockkeeper: ${status} ${code}: ${detail}`);
    const field = textIn(body, "field"), requestId = textIn(body, "request_id");
    Object.assign(this, { status, code, detail, field, requestId, retryAfterMs, body });
  }
}

const requestMs = 10_000; // for a request that is answered at once
const pollMs = 25_000; // for which the gateway holds a look at a waiting lease
const mostHoldMs = 240_000; // for which it holds a heartbeat: Node.js waits for five minutes at most
const tryMs = 30_000; // for finding a gateway that can answer an acquire that does not wait
const leaveMs = 2_000; // for giving up a place in the queue
const releaseMs = 5_000; // for releasing a lease
const lookMs = 250; // between two looks at the clock: a timer stands still while the machine sleeps
const mostAnswer = 1 << 20; // characters. A lease of 64 locks takes some 20 KiB
const leastPauseMs = 50, mostPauseMs = 1_000; // before a repeat: twice as long each time
const unexpected = "unexpected_answer"; // the code of an answer that is not a gateway's

/** Takes locks from the gateways of one fleet. It owns nothing that has to be closed. */
export class Client {
  readonly #gateways: Gateways;

  /** Sends no request. Throws a TypeError when the options cannot be right. */
  constructor(options: ClientOptions = {}) {
    const { urls, token = "", tokenFile, fetch = (url, init) => globalThis.fetch(url, init) } = options;
    if (token && tokenFile) throw invalid("LOCKKEEPER_TOKEN and LOCKKEEPER_TOKEN_FILE are both given: leave one out");
    if (tokenFile && !node) throw invalid("a browser cannot read a token file: give the token");
    const page = (globalThis as { location?: { origin?: string } }).location?.origin;
    const list = urls || (page?.startsWith("http") ? page : "http://127.0.0.1:8080");
    const gateways = (typeof list === "string" ? list.split(",") : list).map((url) => gatewayAt(url.trim(), fetch));
    this.#gateways = new Gateways(gateways, async () => {
      const text: string = tokenFile ? await (await nodeModule("fs/promises")).readFile(tokenFile, "utf8") : token;
      if (/^[\x21-\x7e]*$/.test(text.trim())) return text.trim();
      throw invalid("the token has characters that no token has"); // what fetch would say of it has the token in it
    });
  }

  /** Makes a client of `LOCKKEEPER_URL` (with commas), and `LOCKKEEPER_TOKEN` or `LOCKKEEPER_TOKEN_FILE`. */
  static fromEnv(): Client {
    const { LOCKKEEPER_URL: urls, LOCKKEEPER_TOKEN: token, LOCKKEEPER_TOKEN_FILE: tokenFile } = node?.env ?? {};
    return new Client({ urls, token, tokenFile });
  }

  /**
   * Takes the lock, runs the work, and releases the lock on every path, when the work has settled. Rejects as `acquire`
   * does when the work did not run, and with a {@link LeaseLost} when the lease was lost before the work had settled,
   * also when it did not notice. Otherwise the outcome of the work is the outcome.
   */
  async withLock<T>(locks: Locks, work: Work<T>, options: LeaseOptions = {}): Promise<T> {
    return guard(await this.#acquire(locks, options), work, options.signal);
  }

  /**
   * Does `withLock` once in each period, by all clients together. `done` says that the work of this period is done: the
   * work did not run. Otherwise `result` is its outcome.
   */
  async once<T>(lock: string | Lock, once: Once, work: Work<T>, options: LeaseOptions = {}):
    Promise<{ done: Done; result?: undefined } | { done?: undefined; result: T }> {
    const lease = await this.#acquire<Done>(lock, options, once);
    if ("period" in lease) return { done: lease };
    return { result: await guard(lease, work, options.signal, once.doneOn !== "release") };
  }

  /**
   * Runs `lead` while this client is the leader: the holder of the lock. The fencing token numbers its term. A leader
   * whose lease is lost is a candidate again when `lead` has settled. When `lead` settles while it leads, it resigns,
   * and its outcome is the outcome.
   */
  async elect<T>(lock: string | Lock, lead: Work<T>, options: LeaseOptions = {}): Promise<T> {
    for (;;) {
      const lease = await this.#acquire(lock, options);
      try {
        return await guard(lease, lead, options.signal);
      } catch (error) {
        if (!(error instanceof LeaseLost && error.leaseId === lease.id) || options.signal?.aborted) throw error;
      }
    }
  }

  /**
   * Takes the lock, and waits for it in its queue. Rejects with a {@link NotAcquired} when others hold it and the wait
   * is over, with a {@link Problem} when the gateway refuses, and with the reason of `signal` when that aborts. Once
   * the lock is held, `signal` does not end the lease.
   */
  async acquire(locks: Locks, options: LeaseOptions = {}): Promise<Lease> {
    return this.#acquire(locks, options);
  }

  /** With once the outcome may be a Done. */
  async #acquire<D = never>(locks: Locks, options: LeaseOptions, once?: Once): Promise<Kept | D> {
    const { signal, ttlMs, waitMs = Infinity, owner, metadata, reason } = options;
    signal?.throwIfAborted();
    if (!(waitMs >= 0)) throw new RangeError(`lockkeeper: waitMs (${waitMs}) must not be negative`);
    if (ttlMs !== undefined) marginOf(options.marginMs, ttlMs);
    const several = typeof locks === "object" && Symbol.iterator in locks;
    const wants = (several ? locks : [locks]).map(wanted), { lock, ...mode } = wants[0] ?? { lock: "" };
    const queues = waitMs > 0; // with a ticket (async): the client has the token with which it leaves the queue
    const lasts = { ttl: millis(ttlMs), lock_delay: millis(options.lockDelayMs), at_least: millis(options.atLeastMs) };
    const period = { once_per: millis(once?.perMs), period: once?.period, done_on: once?.doneOn };
    const which = several ? { locks: wants } : mode;
    const body = JSON.stringify({ ...lasts, ...period, ...which, owner, metadata, reason, async: queues || undefined });
    const path = several ? "/v1/leases" : `${pathOf(lock)}/leases`;
    await (ready ??= prepare());
    const waiting = within(queues ? waitMs : tryMs, signal);
    try {
      for (;;) {
        const request: Request = { method: "POST", path, body, key: randomKey(), timeoutMs: requestMs, once };
        try {
          return await this.#attempt<D>(request, options, waiting.signal);
        } catch (error) {
          signal?.throwIfAborted();
          const refusal = isTaken(error) ? error : undefined;
          if (error !== placeLost && !refusal) throw error;
          // The lock cannot be waited for in its queue now (held_by_other of a ticket), or the place was lost.
          const pause = Math.max(leastPauseMs, refusal?.retryAfterMs ?? 0);
          if (queues || !refusal) await sleep(jitter(pause), waiting.signal);
          signal?.throwIfAborted();
          if ((!queues && refusal) || waiting.signal.aborted) throw await this.#notAcquired(wants, refusal);
        }
      }
    } finally {
      waiting.end();
    }
  }

  /** Takes the lock, or one place in its queue and waits there. */
  async #attempt<D>(request: Request, options: LeaseOptions, waiting: AbortSignal): Promise<Kept | D> {
    const gateways = this.#gateways, { once } = request, leave = (token?: string) => gateways.leave(token, once);
    const { sent, answer: grant } = await gateways.repeated(request, waiting).catch(async (error) => {
      // Without an answer the lock may have been taken. A repeat with the idempotency key tells the token.
      if (temporary(error)) await gateways.bounded(request, leaveMs).then((a) => leave(a.token), () => {});
      throw isFinal(error) && error.status === 410 ? placeLost : error; // it ended before this repeat of the request
    });
    const lease = grant.token!, { done, lock = "", period = "", by = "", at = 0 } = grant;
    if (done) return { lock, period, by, at: new Date(at) } as D;
    try {
      let current = grant;
      for (let position = 0; current.state === "waiting"; ) {
        if (current.position && current.position !== position) call(options.onQueued, (position = current.position));
        const path = `/v1/leases/self?wait=${millis(pollMs)}&since=${encodeURIComponent(current.rev ?? "")}`;
        const look = await gateways.repeated({ method: "GET", path, lease, timeoutMs: pollMs + requestMs }, waiting);
        current = look.answer;
        // A queue that moves fast must not make a busy loop.
        if (current.state === "waiting" && clock() - look.sent < leastPauseMs) await sleep(leastPauseMs, waiting);
      }
      if (current.state !== "held") throw placeLost;
      let deadline = sent + grant.ttl_ms + (grant.waited_ms ?? 0);
      if (current !== grant || grant.waited_ms === undefined) {
        // The TTL began before this answer was asked for: a heartbeat begins it anew.
        const beat = await gateways.repeated(heartbeat(lease, 0), waiting);
        deadline = beat.sent + beat.answer.ttl_ms;
      }
      return keep(gateways, lease, current, deadline, options);
    } catch (error) {
      if (error === placeLost || isFinal(error)) throw placeLost;
      await leave(lease);
      throw waiting.aborted ? placeLost : error;
    }
  }

  /** Tells who holds the lock: from the refusal, or else by a look at the lock. */
  async #notAcquired(wants: ReturnType<typeof wanted>[], refusal: Problem | undefined): Promise<NotAcquired> {
    let seen: Partial<Answer> = refusal?.body ?? {};
    if (wants.length === 1 && !seen.holders?.length) {
      const { lock, ns } = wants[0]!, path = pathOf(lock) + (ns ? `?ns=${encodeURIComponent(ns)}` : "");
      seen = await this.#gateways.bounded({ method: "GET", path, timeoutMs: leaveMs }, leaveMs).catch(() => seen);
    }
    const holders = (seen.holders ?? []).map((h): Holder => (
      { owner: h.owner ?? "", leaseId: h.lease_id ?? "", fencingToken: h.fencing_token ?? 0 }));
    const names = wants.map((w) => w.lock).join(",");
    return new NotAcquired(names, holders, seen.queue_length ?? 0, refusal?.retryAfterMs ?? 0);
  }
}

/** Says that a waiting lease ended before it was granted to this client, or that the wait was over before. */
const placeLost = new Error("lockkeeper: the place in the queue was lost");

/** A lease whose release says whether the work of {@link Client.once} is done. */
type Kept = Lease & { release(done?: boolean): Promise<boolean> };

/** Runs the work. When it fails, the lease is released with failed: whether the work is done all the same. */
async function guard<T>(lease: Kept, work: Work<T>, caller: AbortSignal | undefined, failed = true): Promise<T> {
  const stop = within(Infinity, lease.signal, caller);
  try {
    caller?.throwIfAborted();
    lease.throwIfLost(); // its time may have been over when its grant came
    const outcome = await work(lease, stop.signal);
    await lease.release(); // it also aborts what the work has left running
    return outcome;
  } catch (error) {
    await lease.release(failed).catch((lost: LeaseLost) => {
      if (lost !== error) lost.cause = error;
      throw lost;
    });
    throw error;
  } finally {
    stop.end();
  }
}

/** Keeps the lease of a grant whose time is over at deadline. The token stays in here, where no log finds it. */
function keep(gateways: Gateways, token: string, grant: Answer, deadline: number, options: LeaseOptions): Kept {
  const { lease_id: id, ttl_ms: ttl, fencing_token: fence = NaN } = grant, margin = marginOf(options.marginMs, ttl);
  // A larger one was rounded, and could be mistaken for that of another holder.
  if (!Number.isSafeInteger(fence)) throw new RangeError(`lockkeeper: the fencing token (${fence}) is no exact number`);
  const over = new AbortController(), { signal } = over; // its reason is a LeaseLost, or says that it was released
  const left = () => deadline - margin - clock();
  const unconfirmed = () => new LeaseLost(id, "deadline", "", "no gateway confirmed it in time");
  let timer: ReturnType<typeof setTimeout> | undefined, released: Promise<boolean> | undefined;

  const end = (reason: unknown): void => {
    clearTimeout(timer);
    over.abort(reason);
  };
  const held = (): boolean => {
    if (!signal.aborted && !(left() > 0)) end(unconfirmed());
    return !signal.aborted;
  };
  const watch = (): void => void (held() && (timer = setTimeout(watch, Math.min(left(), lookMs))));
  const throwIfLost = (): void => { if (!held() && signal.reason instanceof LeaseLost) throw signal.reason; };
  const release = async (done: boolean): Promise<boolean> => {
    const late = !(left() > 0);
    end(new DOMException("the lease was released", "AbortError"));
    throwIfLost();
    return gateways.bounded(leaving(token, done), releaseMs).then(() => true, (error) => {
      if (isFinal(error)) throw lostBy(id, error);
      if (late) throw unconfirmed(); // the event loop was blocked: the time was over before a timer could say so
      return false;
    });
  };
  // One heartbeat follows the other, each held for a third of the TTL. One that is not held confirms the lease at once:
  // after a failure, and when an answer that is held would come too late.
  const beat = async (): Promise<void> => {
    const longest = Math.min(ttl / 3, mostHoldMs);
    for (let failures = 0, early = 0, asked = false; !signal.aborted; ) {
      const sent = clock(), hold = failures > 0 || left() < longest + ttl / 20 ? 0 : longest;
      try {
        const answer = await gateways.once(heartbeat(token, hold, ttl), signal), ask = answer.revoke_requested;
        deadline = Math.max(deadline, sent + answer.ttl_ms);
        if (ask && !asked) {
          call(options.onRevoke, { reason: ask.reason ?? "", by: ask.by ?? "", forceInMs: ask.force_in_ms });
        }
        asked = Boolean(ask);
        // An early answer that says nothing new must not make a busy loop. Otherwise there is no pause: browsers make
        // the timers of pages in the background wait for up to a minute.
        const tooEarly = failures === 0 && clock() - sent < Math.max(hold, leastPauseMs) / 2;
        early = tooEarly ? Math.min(2 * early || leastPauseMs, lookMs) : 0;
        if (early > 0) await sleep(early, signal);
        failures = 0;
      } catch (error) {
        if (isFinal(error)) return end(lostBy(id, error));
        await sleep(jitter(Math.min(pauseAfter(failures++), ttl / 20)), signal);
      }
    }
  };
  watch();
  void beat();
  return {
    id, fence, signal, throwIfLost,
    get held() { return held(); },
    fenceOf: (lock, namespace = "default") =>
      grant.locks?.find((one) => one.lock === lock && one.ns === namespace)?.fencing_token,
    release: (done: boolean = true) => (released ??= release(done)),
    [asyncDispose]: () => (released ??= release(true)).then(() => {}),
  };
}

// Older runtimes have none.
const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

/** A request to a gateway. It may be sent more than once. */
interface Request {
  method: "GET" | "POST" | "DELETE";
  path: string; // with its query, escaped
  timeoutMs: number; // of each attempt
  body?: string;
  key?: string; // the idempotency key of an acquire
  once?: Once | undefined; // of an acquire: the answer may be that the work is done
  lease?: string; // the lease token. With it there is no API token, which may have expired since
}

/** What the client reads of an answer about a lease. */
interface Answer {
  lease_id: string;
  state: string;
  ttl_ms: number;
  waited_ms?: number; // missing when the TTL began before the request
  token?: string; // in the answer to an acquire
  fencing_token?: number;
  position?: number;
  rev?: string;
  locks?: { lock: string; ns: string; fencing_token: number }[];
  done?: boolean; // the work of the period; there is no lease then, and:
  lock?: string, period?: string, by?: string, at?: string;
  revoke_requested?: { reason?: string; by?: string; force_in_ms?: number };
  // Of an answer about a lock, and of some refusals:
  holders?: { owner?: string; lease_id?: string; fencing_token?: number }[];
  queue_length?: number;
}

/** No gateway answered. */
class NoAnswer extends Error {}

/** The gateways of one fleet, as they are asked. */
class Gateways {
  readonly #list: readonly Gateway[];
  readonly #apiToken: () => Promise<string>;
  #next = 0; // the one that is asked first: the last one that answered

  constructor(list: readonly Gateway[], apiToken: () => Promise<string>) {
    if (list.length === 0) throw invalid("urls is empty: give the URL of a gateway, such as http://127.0.0.1:8080");
    this.#list = list;
    this.#apiToken = apiToken;
  }

  /** Sends the request to one gateway. After a Problem or NoAnswer that another may not have, that other is next. */
  async once(request: Request, signal: AbortSignal, token = ""): Promise<Answer> {
    const at = this.#next, gateway = this.#list[at]!, attempt = within(request.timeoutMs, signal);
    try {
      return await ask(gateway, request, token, attempt.signal);
    } catch (cause) {
      const silent = () => new NoAnswer(`lockkeeper: ${gateway.url} does not answer: ${cause}`, { cause });
      const error = cause instanceof Problem ? cause : silent();
      if (temporary(error) && !signal.aborted && this.#next === at) this.#next = (at + 1) % this.#list.length;
      throw error;
    } finally {
      attempt.end();
    }
  }

  /** Sends the request until a gateway answers it, or refuses what a repeat does not change, or signal aborts. */
  async repeated(request: Request, signal: AbortSignal): Promise<{ sent: number; answer: Answer }> {
    for (let failures = 0; ; ) {
      const token = request.lease ? "" : await this.#apiToken(), sent = clock();
      try {
        return { sent, answer: await this.once(request, signal, token) };
      } catch (error) {
        if (!temporary(error) || signal.aborted) throw error;
        const pause = pauseAfter(failures++), beats = request.path.includes("/heartbeat");
        const asked = error instanceof Problem && !beats ? error.retryAfterMs : 0;
        await sleep(jitter(Math.max(pause, asked)), signal);
        if (signal.aborted) throw error;
      }
    }
  }

  /** Sends the request until a gateway answers it, for so long at most. */
  async bounded(request: Request, ms: number): Promise<Answer> {
    const time = within(ms);
    return this.repeated(request, time.signal).then(({ answer }) => answer).finally(time.end);
  }

  /** Gives up a place in the queue, or a lease granted meanwhile. Without an answer it passes on by time. */
  async leave(lease: string | undefined, once?: Once): Promise<void> {
    if (lease) await this.bounded(leaving(lease, once?.doneOn !== "release"), leaveMs).catch(() => {});
  }
}

/** Sends the request once, and checks that it was a gateway that answered: a proxy may answer by itself. */
async function ask(gateway: Gateway, request: Request, token: string, signal: AbortSignal): Promise<Answer> {
  const { method, path, body = null, lease, key } = request;
  const fields = { "Content-Type": body && "application/json", "Idempotency-Key": key, "Lease-Token": lease };
  const all = { ...fields, "User-Agent": node && "lockkeeper-js", Authorization: token && `Bearer ${token}` };
  const headers = Object.fromEntries(Object.entries(all).filter(([, value]) => value)) as Record<string, string>;
  // A redirect would carry the tokens to another address. keepalive lets a release go on when its page is closed.
  const keepalive = method === "DELETE", init: RequestInit = { method, headers, body, signal, keepalive };
  const response = await gateway.send(path, { ...init, redirect: "manual" }), { status } = response;
  const text = await textOf(response);
  let answer: Partial<Answer> = {};
  try {
    answer = Object(JSON.parse(text));
  } catch {} // no gateway sent it
  const timed = isTime(answer.ttl_ms) && answer.ttl_ms > 0 && isTime(answer.waited_ms ?? 0);
  const ofLease = textIn(answer, "lease_id") && textIn(answer, "state") && timed;
  const right = lease || key ? ofLease && (lease || textIn(answer, "token")) : Array.isArray(answer.holders);
  const done = request.once && answer.done === true && textIn(answer, "at");
  if (method === "DELETE" ? status === 204 : response.ok && (right || done)) return answer as Answer;
  const [seconds] = /^\d{1,5}$/.exec(response.headers.get("Retry-After") ?? "") ?? [0];
  const refusal = status >= 400 && textIn(answer, "code") ? answer : { code: unexpected, detail: text.slice(0, 200) };
  throw new Problem(status, Number(seconds) * 1000, refusal);
}

/** Reads an answer, and gives up on one that is longer than any of a gateway. */
async function textOf({ body }: Response): Promise<string> {
  const reader = body?.getReader(), decoder = new TextDecoder();
  let text = "";
  for (let part = await reader?.read(); part?.value; part = await reader?.read()) {
    text += decoder.decode(part.value, { stream: true });
    if (text.length > mostAnswer) return reader!.cancel().then(() => Promise.reject(new Error("too long an answer")));
  }
  return text;
}

function textIn(body: object, name: string): string {
  const value: unknown = Reflect.get(body, name);
  return typeof value === "string" ? value : "";
}

/** Whether the same request may succeed later, or at another gateway. */
function temporary(error: unknown): boolean {
  if (!(error instanceof Problem)) return error instanceof NoAnswer;
  return error.code === unexpected || error.status >= 500 || [408, 429].includes(error.status);
}

/** Whether a gateway says that the lease is over, or is not this client's. */
const isFinal = (error: unknown): error is Problem =>
  error instanceof Problem && error.code !== unexpected && [403, 404, 410].includes(error.status);

/** Whether others have the lock. */
const isTaken = (error: unknown): error is Problem =>
  error instanceof Problem && ["held_by_other", "lock_delayed", "wait_elapsed"].includes(error.code);

const lostBy = (id: string, { body, detail }: Problem) =>
  new LeaseLost(id, textIn(body, "reason") || "gone", textIn(body, "by"), detail);

const invalid = (what: string) => new TypeError(`lockkeeper: ${what}`);
const isTime = (ms: unknown): ms is number => Number.isSafeInteger(ms) && Number(ms) >= 0;
const pathOf = (lock: string) => `/v1/locks/${encodeURIComponent(lock)}`;
const millis = (ms: number | undefined) => (ms === undefined ? undefined : `${Math.floor(ms)}ms`);
const jitter = (ms: number) => ms * (1 + Math.random() / 4); // spreads the repeats of many clients
const pauseAfter = (failures: number) => Math.min(leastPauseMs * 2 ** failures, mostPauseMs);
const leaving = (lease: string, done: boolean): Request => (
  { method: "DELETE", path: `/v1/leases/self${done ? "" : "?done=false"}`, lease, timeoutMs: leaveMs });

function heartbeat(lease: string, hold: number, ttl = Infinity): Request {
  const late = Math.min(requestMs, Math.max(ttl / 6, 100)); // for which an answer is waited for
  const path = `/v1/leases/self/heartbeat${hold > 0 ? `?wait=${millis(hold)}` : ""}`;
  return { method: "POST", path, lease, timeoutMs: hold + late };
}

/** How long before the end of its time a lease is ended. */
function marginOf(marginMs: number | undefined, ttlMs: number): number {
  const margin = marginMs ?? Math.min(1000, ttlMs / 5);
  if (margin >= 0 && 2 * margin < ttlMs) return margin;
  throw new RangeError(`lockkeeper: marginMs (${margin}) must be 0 or more, and less than half of the TTL (${ttlMs})`);
}

/** A lock as the API takes it. */
function wanted(one: string | Lock) {
  const { name, namespace, shared, permits, limit }: Lock = typeof one === "string" ? { name: one } : one;
  const semaphore = permits !== undefined || limit !== undefined;
  // A path has other uses for dots.
  if (["", ".", "..", undefined].includes(name)) throw invalid(`${JSON.stringify(name)} is no name of a lock`);
  if (shared && semaphore) throw invalid(`${name} is either shared or a semaphore: leave the one or the other out`);
  return { lock: name, ns: namespace, mode: shared ? "shared" : semaphore ? "semaphore" : undefined, permits, limit };
}

/** Calls what the caller gave. What it throws is an unhandled rejection, and no matter of the lease. */
const call = <T>(f: ((value: T) => void) | undefined, value: T) => void (f && Promise.resolve(value).then(f));

/** A signal that aborts with the first of its parents, or when the time is over. */
function within(ms: number, ...parents: (AbortSignal | undefined)[]): { signal: AbortSignal; end: () => void } {
  const controller = new AbortController(), abort = (reason: unknown) => controller.abort(reason);
  // A timer with a longer time would fire at once.
  const late = new Error(`not within ${ms} ms`);
  const timer = ms < Infinity ? setTimeout(abort, Math.min(ms, 2 ** 31 - 1), late) : undefined;
  const leave = parents.map((parent) => parent && follow(parent, abort));
  return { signal: controller.signal, end: () => (clearTimeout(timer), leave.forEach((end) => end?.())) };
}

const followers = new WeakMap<EventTarget, Set<(reason: unknown) => void>>();
const tellAll = ({ target }: Event) => followers.get(target!)?.forEach((f) => f((target as AbortSignal).reason));

/** Calls f when signal aborts, or has. One listener serves all who follow a signal: Node.js warns of more than ten. */
function follow(signal: AbortSignal, f: (reason: unknown) => void): () => void {
  if (signal.aborted) f(signal.reason);
  const all = followers.get(signal) ?? new Set();
  followers.set(signal, all.add(f));
  signal.addEventListener("abort", tellAll); // it is there once, however often it is added
  return () => {
    all.delete(f);
    if (all.size === 0) signal.removeEventListener("abort", tellAll);
  };
}

/** Resolves when the time is over or signal aborts. */
async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  const { signal: over, end } = within(ms, signal);
  if (!over.aborted) await new Promise((done) => over.addEventListener("abort", done));
  end();
}

// What differs between runtimes. Node.js gives its modules when they are needed, by names that no bundler follows. They
// have no types here, because a project may have none of Node.js.

type NodeProcess = { env: Record<string, string | undefined>; platform: string; versions?: { node?: string } };
const { process } = globalThis as { process?: NodeProcess };
const node = process?.versions?.node ? process : undefined;
const nodeModule = (name: string) => import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);

type Gateway = { url: string; send(path: string, init: RequestInit): Promise<Response> };

/** Checks the URL of a gateway. */
function gatewayAt(url: string, fetch: typeof globalThis.fetch): Gateway {
  if (node && /^unix:./.test(url)) return { url, send: (path, init) => unixFetch(url.slice(5), path, init) };
  const { host, username, password, search, hash, href } = new URL(/^https?:\/\//.test(url) ? url : "none:");
  if (!host) throw invalid(`${url} is no URL of a gateway, such as https://x.example.com, in Node.js unix:/run/x`);
  if (username || password || search || hash) throw invalid(`the URL of ${host} has a user, a query or a fragment`);
  return { url, send: (path, init) => fetch(href.replace(/\/$/, "") + path, init) };
}

/** fetch over a Unix socket, which fetch itself cannot. */
async function unixFetch(socketPath: string, path: string, { body, ...init }: RequestInit): Promise<Response> {
  const [{ request }, { Readable }] = await Promise.all([nodeModule("http"), nodeModule("stream")]);
  const answer = await new Promise<{ statusCode: number; headers: Record<string, string> }>((resolve, reject) => {
    request({ socketPath, path, ...init }, resolve).on("error", reject).end(body);
  });
  const { statusCode: status, headers: answered } = answer;
  return new Response(status === 204 || status === 304 ? null : Readable.toWeb(answer), { status, headers: answered });
}

let clock: () => number; // in milliseconds; it goes on while the machine sleeps
let randomKey: () => string, ready: Promise<void> | undefined;

async function prepare(): Promise<void> {
  type Random = { getRandomValues(bytes: Uint8Array): Uint8Array };
  // Node.js 18 has no global one.
  const random: Random = (globalThis as { crypto?: Random }).crypto ?? (await nodeModule("crypto")).webcrypto;
  const hex = (byte: number) => byte.toString(16).padStart(2, "0");
  randomKey = () => Array.from(random.getRandomValues(new Uint8Array(16)), hex).join("");
  if (node?.platform === "linux") {
    const { uptime } = await nodeModule("os");
    clock = () => uptime() * 1000; // CLOCK_BOOTTIME
    return;
  }
  // The monotonic clock may stand still while the machine sleeps: what the time of day went further is added.
  let asleep = 0, ahead = Infinity;
  clock = () => {
    for (;;) {
      const before = performance.now(), skew = Date.now() - before, now = performance.now();
      if (now - before > 5) continue; // the process stood still between the two
      if (skew > ahead + 10) asleep += skew - ahead;
      if (skew > ahead + 10 || skew < ahead) ahead = skew;
      return now + asleep;
    }
  };
}

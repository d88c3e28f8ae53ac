/**
 * Takes locks from a Lockkeeper gateway, and stops the work that they protect in time.
 *
 * ```ts
 * const client = Client.fromEnv(); // LOCKKEEPER_URL, LOCKKEEPER_TOKEN
 * await client.withLock("report", async (lease, signal) => {
 *   await writeReport({ fence: lease.fence, signal });
 * });
 * ```
 *
 * `signal` aborts before another client can hold the lock: when the lease is lost, and at the latest the margin before the
 * lease can pass by time. Work has to heed it: pass it on, or call `lease.throwIfLost()` before each step. A process that stands
 * still, or whose event loop is blocked, cannot stop its work. What must not happen even then is refused by what the lock
 * protects: send it `lease.fence`, and let it refuse lower ones.
 *
 * All durations are numbers of milliseconds. The file has no dependency, and runs in Node.js 18 or later and in browsers.
 *
 * @module
 */
/// <reference lib="esnext.disposable" preserve="true" />

/** Which gateways a {@link Client} asks, and how. */
export interface ClientOptions {
  /**
   * Gateways of one fleet, such as `http://127.0.0.1:8080`, or with Node.js `unix:/run/lockkeeper.sock`. The next one is asked when
   * one does not answer. Without it: the origin of the page in a browser, elsewhere `http://127.0.0.1:8080`.
   */
  urls?: string | readonly string[] | undefined;
  /** The API token, sent with each acquire. */
  token?: string | undefined;
  /** A file that holds the API token (not in browsers). It is read for each acquire, so that the token in it can change. */
  tokenFile?: string | undefined;
  /** Sends the requests in place of the runtime's own `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** How a lock is taken: alone, together with other readers (`shared`), or some permits of a semaphore. */
export interface Mode {
  namespace?: string | undefined;
  /** Takes the lock together with other readers. */
  shared?: boolean | undefined;
  /** Takes so many of the lock's permits. */
  permits?: number | undefined;
  /** How many permits the lock has. Without it, as many as it is known to have. */
  limit?: number | undefined;
}

/** One of several locks that are taken at once. */
export interface Lock extends Mode {
  name: string;
}

/** Options of an acquire, of one lock or of several. */
export interface LeaseOptions {
  /** For so long others wait when this process dies. 30,000 unless given; at least 1,000. Below 15,000 the crash of a gateway can cost the lease. */
  ttlMs?: number | undefined;
  /** Bounds the time in the queue. Without it the acquire waits until `signal` aborts. 0 tries. */
  waitMs?: number | undefined;
  /** How long before the end of the lease's time the work is stopped. 1,000 unless given, or a fifth of a TTL below 5,000. */
  marginMs?: number | undefined;
  /** A label for people who look at the lock. */
  owner?: string | undefined;
  /** A text that every client can read at the lock, such as the address of a leader. */
  metadata?: string | undefined;
  /** Keeps the lock free for so long after the lease was held, so that a holder that has not noticed yet can finish. */
  lockDelayMs?: number | undefined;
  /** Ends the wait, and leaves the queue. With `withLock` it also aborts the signal of the work. */
  signal?: AbortSignal | undefined;
  /** Called once when the holder is asked to release the lease. The work may go on until the lease is lost. */
  onRevoke?: ((reason: string) => void) | undefined;
  /** Called with the place among the waiters: first when the acquire enters the queue, then when the place changes. */
  onQueued?: ((position: number) => void) | undefined;
}

/** Options of an acquire of one lock. */
export interface LockOptions extends LeaseOptions, Mode {}

/** The work under a lease. `signal` aborts when the lease is lost, and when the caller's own signal aborts. */
export type Work<T> = (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>;

/** A lock that is held. */
export interface Lease extends AsyncDisposable {
  /** Names the lease in logs and lists. It gives no right. */
  readonly id: string;
  /** The fencing token: each holder of the lock has a higher one than the holder before. Of several locks, their highest. */
  readonly fence: number;
  /** Aborts when the lease is lost, with the {@link LeaseLost} as its reason, and when it is released. */
  readonly signal: AbortSignal;
  /** Whether the work may go on now. It looks at the clock, so it is right also when timers are late. */
  readonly held: boolean;
  /** The fencing token of one lock of several, and `undefined` for a lock that the lease does not hold. */
  fenceOf(lock: string, namespace?: string): number | undefined;
  /** Throws the {@link LeaseLost} when the lease is lost. Work calls it before each step that takes less than the margin. */
  throwIfLost(): void;
  /**
   * Gives the lock back. It may be called again. Rejects with a {@link LeaseLost} when the lease had ended before. The value is false
   * when no gateway answered for 5 s: the lease then ends by itself, within its TTL.
   */
  release(): Promise<boolean>;
}

/** A holder of a lock. */
export interface Holder {
  owner: string;
  /** Empty for a program that locks in ZooKeeper itself. */
  leaseId: string;
  /** 0 when the holder has none. */
  fencingToken: number;
}

/** The lease ended before its holder released it. `cause` is what the work threw after that, if it threw something else. */
export class LeaseLost extends Error {
  override readonly name = "LeaseLost";
  constructor(
    readonly leaseId: string,
    /** `expired`, `revoked`, `removed`, `destroyed`, ...; `deadline`: no gateway confirmed the lease in time; `gone`: no gateway knows it. */
    readonly reason: string,
    /** Who ended it, when the gateway tells; otherwise empty. */
    readonly by = "",
    /** A sentence for people. */
    readonly detail = "",
  ) {
    super(`lockkeeper: lease ${leaseId} is lost: ${reason}${by && ` by ${by}`}${detail && ` (${detail})`}`);
  }
}

/** Others hold the lock, and the time for waiting is over. */
export class NotAcquired extends Error {
  override readonly name = "NotAcquired";
  constructor(
    readonly lock: string,
    /** As the gateway saw them last; may be empty. */
    readonly holders: readonly Holder[],
    readonly queueLength: number,
    /** The least time after which the answer can change, 0 when it is not known. */
    readonly retryAfterMs: number,
  ) {
    super(`lockkeeper: ${lock} is held${holders[0]?.owner ? ` by ${holders[0].owner}` : ""}, and ${queueLength} wait for it`);
  }
}

/** The gateway refuses the request. Programs go by `code`; docs/errors.md lists the codes. */
export class Problem extends Error {
  override readonly name = "Problem";
  constructor(
    readonly status: number,
    /** `unexpected_answer` when the answer was not a gateway's. */
    readonly code: string,
    readonly detail: string,
    /** What is wrong in the request, if it is one field. */
    readonly field: string,
    readonly requestId: string,
    /** The gateway's Retry-After. */
    readonly retryAfterMs: number,
    /** All that the gateway said. */
    readonly body: Readonly<object>,
  ) {
    super(`lockkeeper: ${status} ${code}${detail && `: ${detail}`}`);
  }
}

const requestMs = 10_000; // for a request that is answered at once
const pollMs = 25_000; // for which the gateway holds a look at a waiting lease
const mostHoldMs = 240_000; // for which it holds a heartbeat: runtimes give up after five minutes, and so does the gateway
const tryMs = 30_000; // for finding a gateway that can answer an acquire that does not wait
const leaveMs = 2_000; // for giving up a place in the queue
const releaseMs = 5_000; // for releasing a lease
const lookMs = 250; // between two looks at the clock: a timer stands still while the machine sleeps
const leastPauseMs = 50; // before a repeat; then twice as long each time
const mostPauseMs = 1_000;
const maxAnswer = 1 << 20; // bytes. A lease of 64 locks takes some 20 KiB

/** What of the gateway's answers the client reads. */
interface Answer {
  lease_id: string;
  state: string;
  ttl_ms: number;
  token?: string; // of the answer to an acquire
  position?: number;
  waited_ms?: number; // missing when the TTL began before the request
  fencing_token?: number;
  rev?: string;
  locks?: { lock: string; ns: string; fencing_token: number }[];
  revoke_requested?: { reason?: string };
  holders?: { owner?: string; lease_id?: string; fencing_token?: number }[];
  queue_length?: number;
}

/** What of a problem (RFC 9457) the client reads; beside it there may be what an answer has. */
interface Refusal extends Partial<Answer> {
  code?: string;
  title?: string;
  detail?: string;
  field?: string;
  reason?: string;
  by?: string;
  request_id?: string;
}

/** A request to a gateway. It may be sent more than once. */
interface Request {
  method: "GET" | "POST" | "DELETE";
  path: string; // with its query, escaped
  timeoutMs: number; // of each attempt
  body?: string;
  lease?: string; // the lease token: a request with it carries no API token, which may have expired since
  key?: string; // the idempotency key
}

/** Takes locks from the gateways of one fleet. It owns nothing that has to be closed. */
export class Client {
  readonly #gateways: Gateways;

  /** Sends no request. Throws a TypeError when the options cannot be right. */
  constructor(options: ClientOptions = {}) {
    const { token, tokenFile } = options;
    if (token && tokenFile) {
      throw new TypeError("lockkeeper: both a token and a token file are given (LOCKKEEPER_TOKEN, LOCKKEEPER_TOKEN_FILE): leave one out");
    }
    if (tokenFile && !node) throw new TypeError("lockkeeper: a browser cannot read a token file: give the token");
    const page = (globalThis as { location?: { origin?: string } }).location?.origin;
    const urls = options.urls || (page?.startsWith("http") ? page : "http://127.0.0.1:8080");
    const readToken = async () => {
      const text = tokenFile ? await (await nodeModule<NodeFiles>("fs/promises")).readFile(tokenFile, "utf8") : (token ?? "");
      // What fetch would say of it has the token in it.
      if (!/^[\x21-\x7e]*$/.test(text.trim())) throw new TypeError("lockkeeper: the token has characters that no token has");
      return text.trim();
    };
    this.#gateways = new Gateways(typeof urls === "string" ? urls.split(",") : urls, readToken, options.fetch ?? ((url, init) => fetch(url, init)));
  }

  /**
   * Makes a client of the environment: `LOCKKEEPER_URL` (several URLs with commas between them), and `LOCKKEEPER_TOKEN` or
   * `LOCKKEEPER_TOKEN_FILE`.
   */
  static fromEnv(): Client {
    const env = node?.env ?? {};
    return new Client({ urls: env["LOCKKEEPER_URL"], token: env["LOCKKEEPER_TOKEN"], tokenFile: env["LOCKKEEPER_TOKEN_FILE"] });
  }

  /**
   * Takes the lock, runs the work, and releases the lock on every path. It waits until the work has settled. Rejects with a
   * {@link LeaseLost} when the lease was lost before that, also when the work did not notice; otherwise the outcome of the work is
   * the outcome. Rejects as {@link Client.acquire} does when the work did not run.
   */
  async withLock<T>(name: string, work: Work<T>, options: LockOptions = {}): Promise<T> {
    return guard(await this.#acquire(name, options), work, options.signal);
  }

  /** {@link Client.withLock} for several locks: all of them at once, or none. */
  async withLocks<T>(locks: readonly Lock[], work: Work<T>, options: LeaseOptions = {}): Promise<T> {
    return guard(await this.#acquire(locks, options), work, options.signal);
  }

  /**
   * Takes the lock, and waits for it in its queue. Rejects with a {@link NotAcquired} when others hold it and the wait is over, with a
   * {@link Problem} when the gateway refuses, and with the reason of `signal` when that aborts. `signal` does not end the lease:
   * see {@link Lease.release}.
   */
  acquire(name: string, options: LockOptions = {}): Promise<Lease> {
    return this.#acquire(name, options);
  }

  /** Takes all the locks at once, or none. Clients that name the same locks in different orders cannot block each other. */
  acquireAll(locks: readonly Lock[], options: LeaseOptions = {}): Promise<Lease> {
    return this.#acquire(locks, options);
  }

  /**
   * Runs `lead` while this client is the leader: the holder of the lock. Waiters are the candidates; `metadata` says where a leader is
   * reached, and the fencing token is the number of its term. A leader whose lease is lost is a candidate again when `lead` has
   * settled. When `lead` settles while it leads, it resigns, and its outcome is the outcome.
   */
  async elect<T>(name: string, lead: Work<T>, options: LockOptions = {}): Promise<T> {
    for (;;) {
      const lease = await this.#acquire(name, options);
      try {
        return await guard(lease, lead, options.signal);
      } catch (error) {
        if (!(error instanceof LeaseLost && error.leaseId === lease.id) || options.signal?.aborted) throw error;
      }
    }
  }

  /**
   * Asks for the lease, and waits for it. A ticket (async) keeps the place in the queue while gateways come and go, and gives the
   * client the token that it needs to leave the queue.
   */
  async #acquire(locks: string | readonly Lock[], options: LockOptions): Promise<HeldLease> {
    const { signal, ttlMs, waitMs = Infinity } = options;
    signal?.throwIfAborted();
    await (ready ??= prepare());
    if (!(waitMs >= 0)) throw new RangeError(`lockkeeper: waitMs (${waitMs}) must not be negative`);
    if (ttlMs !== undefined) marginOf(options.marginMs, ttlMs);
    const queues = waitMs > 0;
    const body = JSON.stringify({
      ttl: millis(ttlMs), owner: options.owner, metadata: options.metadata, lock_delay: millis(options.lockDelayMs), async: queues || undefined,
      ...(typeof locks === "string" ? wanted(options) : { locks: locks.map((lock) => ({ lock: lock.name, ...wanted(lock) })) }),
    });
    const waiting = within(queues ? waitMs : tryMs, signal);
    try {
      for (;;) {
        try {
          return await this.#attempt(locks, body, options, waiting.signal);
        } catch (error) {
          signal?.throwIfAborted();
          const taken = error instanceof Problem && ["held_by_other", "lock_delayed", "wait_elapsed"].includes(error.code) ? error : undefined;
          if (error !== placeLost && !taken) throw error;
          // The lock cannot be waited for in its queue now (held_by_other of a ticket), or the place was lost.
          if (queues) await sleep(jitter(Math.max(leastPauseMs, taken?.retryAfterMs ?? 0)), waiting.signal);
          signal?.throwIfAborted();
          if (!queues || waiting.signal.aborted) throw await this.#notAcquired(locks, options, taken);
        }
      }
    } finally {
      waiting.end();
    }
  }

  /** Takes the lock, or one place in its queue and waits there. All its requests have one idempotency key. */
  async #attempt(locks: string | readonly Lock[], body: string, options: LockOptions, waiting: AbortSignal): Promise<HeldLease> {
    const gateways = this.#gateways;
    const path = typeof locks === "string" ? `${pathOf(locks)}/leases` : "/v1/leases";
    const request: Request = { method: "POST", path, body, key: randomKey(), timeoutMs: requestMs };
    const { sent, answer: grant } = await gateways.repeated(request, waiting).catch(async (error) => {
      // Without an answer the lock may have been taken. A repeat with the idempotency key tells the token.
      if (temporary(error)) await gateways.bounded(request, leaveMs).then((taken) => gateways.leave(taken.token!), () => {});
      throw error;
    });
    const lease = grant.token ?? "";
    try {
      let current = grant;
      for (let position = 0; current.state === "waiting"; ) {
        if (current.position && current.position !== position) call(options.onQueued, (position = current.position));
        const poll = `/v1/leases/self?wait=${pollMs}ms&since=${encodeURIComponent(current.rev ?? "")}`;
        const look = await gateways.repeated({ method: "GET", path: poll, lease, timeoutMs: pollMs + requestMs }, waiting);
        current = look.answer;
        // A queue that moves fast must not make a busy loop.
        if (current.state === "waiting" && clock() - look.sent < leastPauseMs) await sleep(leastPauseMs, waiting);
      }
      if (current.state !== "held") throw placeLost;
      if (current === grant && grant.waited_ms !== undefined) {
        return new HeldLease(gateways, lease, grant, sent + grant.waited_ms + grant.ttl_ms, options);
      }
      // The TTL began before this answer was asked for: a heartbeat begins it anew.
      const beat = await gateways.repeated(heartbeat(lease, 0), waiting);
      return new HeldLease(gateways, lease, current, beat.sent + beat.answer.ttl_ms, options);
    } catch (error) {
      if (error === placeLost || isFinal(error)) throw placeLost;
      await gateways.leave(lease);
      throw waiting.aborted ? placeLost : error;
    }
  }

  /** Tells who holds the lock: from the refusal, or else by a look at the lock. */
  async #notAcquired(locks: string | readonly Lock[], options: LockOptions, refusal: Problem | undefined): Promise<NotAcquired> {
    let seen: Refusal = refusal?.body ?? {};
    if (typeof locks === "string" && !seen.holders?.length) {
      const path = pathOf(locks) + (options.namespace ? `?ns=${encodeURIComponent(options.namespace)}` : "");
      seen = await this.#gateways.bounded({ method: "GET", path, timeoutMs: leaveMs }, leaveMs).catch(() => seen);
    }
    const holders = (seen.holders ?? []).map((h) => ({ owner: h.owner ?? "", leaseId: h.lease_id ?? "", fencingToken: h.fencing_token ?? 0 }));
    const name = typeof locks === "string" ? locks : locks.map((lock) => lock.name).join(",");
    return new NotAcquired(name, holders, seen.queue_length ?? 0, refusal?.retryAfterMs ?? 0);
  }
}

/** Says that a waiting lease ended before it was granted to this client, or that the wait was over before. */
const placeLost = new Error("lockkeeper: the place in the queue was lost");

async function guard<T>(lease: HeldLease, work: Work<T>, caller: AbortSignal | undefined): Promise<T> {
  const stop = within(Infinity, lease.signal, caller);
  let outcome: { value: T } | { error: unknown };
  try {
    if (caller?.aborted) throw caller.reason;
    outcome = { value: await work(lease, stop.signal) };
  } catch (error) {
    outcome = { error };
  }
  try {
    await lease.release(); // it also aborts what the work has left running
  } catch (lost) {
    if ("error" in outcome && outcome.error !== lost) (lost as LeaseLost).cause = outcome.error;
    throw lost;
  } finally {
    stop.end();
  }
  if ("error" in outcome) throw outcome.error;
  return outcome.value;
}

// Older runtimes have no such symbol.
const dispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

class HeldLease implements Lease {
  readonly id: string;
  readonly fence: number;
  readonly #gateways: Gateways;
  readonly #token: string;
  readonly #grant: Answer;
  readonly #ttlMs: number;
  readonly #marginMs: number;
  readonly #onRevoke: ((reason: string) => void) | undefined;
  readonly #end = new AbortController(); // its reason is a LeaseLost, or says that the lease was released
  #deadline: number; // by clock(), without the margin
  #timer: ReturnType<typeof setTimeout> | undefined;
  #released: Promise<boolean> | undefined;

  constructor(gateways: Gateways, token: string, grant: Answer, deadline: number, options: LockOptions) {
    this.#gateways = gateways;
    this.#token = token;
    this.#grant = grant;
    this.#ttlMs = grant.ttl_ms;
    this.#marginMs = marginOf(options.marginMs, this.#ttlMs);
    this.#onRevoke = options.onRevoke;
    this.#deadline = deadline;
    this.id = grant.lease_id;
    this.fence = grant.fencing_token ?? NaN;
    // A larger one was rounded, and could be mistaken for that of another holder.
    if (!Number.isSafeInteger(this.fence)) throw new RangeError(`lockkeeper: the fencing token (${this.fence}) is no exact number`);
    this.#watch();
    void this.#beat();
  }

  get signal(): AbortSignal {
    return this.#end.signal;
  }

  get held(): boolean {
    if (!this.signal.aborted && !(this.#leftMs() > 0)) this.#stop(unconfirmed(this.id));
    return !this.signal.aborted;
  }

  fenceOf(lock: string, namespace = "default"): number | undefined {
    return this.#grant.locks?.find((one) => one.lock === lock && one.ns === namespace)?.fencing_token;
  }

  throwIfLost(): void {
    if (!this.held && this.signal.reason instanceof LeaseLost) throw this.signal.reason;
  }

  release(): Promise<boolean> {
    return (this.#released ??= this.#release());
  }

  [dispose](): Promise<void> {
    return this.release().then(() => {});
  }

  async #release(): Promise<boolean> {
    const late = !(this.#leftMs() > 0);
    this.#stop(new DOMException("the lease was released", "AbortError"));
    this.throwIfLost();
    try {
      await this.#gateways.bounded(leaving(this.#token), releaseMs);
      return true;
    } catch (error) {
      if (isFinal(error)) throw lostBy(this.id, error);
      // The event loop was blocked: the time was over before the timer could say so.
      if (late) throw unconfirmed(this.id);
      return false;
    }
  }

  #leftMs(): number {
    return this.#deadline - this.#marginMs - clock();
  }

  #stop(reason: unknown): void {
    clearTimeout(this.#timer);
    this.#end.abort(reason);
  }

  /** Ends the lease when its time is over. */
  #watch(): void {
    const left = this.#leftMs();
    if (left > 0) this.#timer = setTimeout(() => this.#watch(), Math.min(left, lookMs));
    else this.#stop(unconfirmed(this.id));
  }

  /**
   * Sends one heartbeat after the other until the lease is over. Each is held for a third of the TTL; after a failure one is sent
   * that is not held, so that another gateway can confirm the lease at once.
   */
  async #beat(): Promise<void> {
    const ttl = this.#ttlMs, longest = Math.min(ttl / 3, mostHoldMs);
    let hold = longest, pause = leastPauseMs, early = 0, asked = false;
    while (!this.signal.aborted) {
      const sent = clock();
      try {
        const answer = await this.#gateways.once(heartbeat(this.#token, hold, ttl), this.signal);
        this.#deadline = Math.max(this.#deadline, sent + answer.ttl_ms);
        const ask = answer.revoke_requested;
        if (ask && !asked) call(this.#onRevoke, ask.reason ?? "");
        asked = Boolean(ask);
        // An early answer that says nothing about this lease, such as one about new waiters, must not make a busy loop. Otherwise there
        // is no pause: browsers make the timers of pages in the background wait for a minute.
        early = hold > 0 && clock() - sent < hold / 2 ? Math.min(2 * early || leastPauseMs, lookMs) : 0;
        if (early > 0) await sleep(early, this.signal);
        hold = longest;
        pause = leastPauseMs;
      } catch (error) {
        if (this.signal.aborted) return;
        if (isFinal(error)) return this.#stop(lostBy(this.id, error));
        await sleep(jitter(Math.min(pause, ttl / 20)), this.signal);
        hold = 0;
        pause = Math.min(2 * pause, mostPauseMs);
      }
    }
  }
}

/** The gateways of one fleet, as they are asked. */
class Gateways {
  readonly #urls: string[];
  readonly #readToken: () => Promise<string>;
  readonly #fetch: typeof fetch;
  #next = 0; // the one that is asked first: the last one that answered

  constructor(urls: readonly string[], readToken: () => Promise<string>, send: typeof fetch) {
    this.#urls = urls.map((url) => gatewayURL(url.trim()));
    if (urls.length === 0) throw new TypeError("lockkeeper: urls is empty: give the URL of a gateway, such as http://127.0.0.1:8080");
    this.#readToken = readToken;
    this.#fetch = send;
  }

  /**
   * Sends the request to one gateway. Rejects with a Problem, or with another error when no answer came. After an error that another
   * gateway may not have, the next request goes to the next gateway.
   */
  async once(request: Request, signal: AbortSignal, token = ""): Promise<Answer> {
    const at = this.#next, attempt = within(request.timeoutMs, signal);
    try {
      return await this.#send(this.#urls[at]!, request, token, attempt.signal);
    } catch (cause) {
      const error = cause instanceof Problem ? cause : new NoAnswer(`lockkeeper: ${this.#urls[at]} did not answer: ${cause}`, { cause });
      if (temporary(error) && !signal.aborted && this.#next === at) this.#next = (at + 1) % this.#urls.length;
      throw error;
    } finally {
      attempt.end();
    }
  }

  /** Sends the request until a gateway answers it with success or with a refusal that a repeat does not change, or until signal aborts. */
  async repeated(request: Request, signal: AbortSignal): Promise<{ sent: number; answer: Answer }> {
    for (let pause = leastPauseMs; ; pause = Math.min(2 * pause, mostPauseMs)) {
      const token = request.lease ? "" : await this.#readToken(), sent = clock();
      try {
        return { sent, answer: await this.once(request, signal, token) };
      } catch (error) {
        if (!temporary(error) || signal.aborted) throw error;
        const asked = error instanceof Problem && !request.path.includes("/heartbeat") ? error.retryAfterMs : 0;
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

  /** Gives up a place in the queue, or a lease that was granted meanwhile. Without an answer it passes on when its time is over. */
  async leave(lease: string): Promise<void> {
    await this.bounded(leaving(lease), leaveMs).catch(() => {});
  }

  async #send(base: string, request: Request, token: string, signal: AbortSignal): Promise<Answer> {
    const headers: Record<string, string> = node ? { "User-Agent": "lockkeeper-js" } : {};
    if (request.body) headers["Content-Type"] = "application/json";
    if (request.key) headers["Idempotency-Key"] = request.key;
    if (request.lease) headers["Lease-Token"] = request.lease;
    else if (token) headers["Authorization"] = `Bearer ${token}`;
    const init = { method: request.method, headers, body: request.body ?? null, signal };
    const response = base.startsWith("unix:")
      ? await unixFetch(base.slice(5), request.path, init)
      : // A redirect would carry the tokens to another address. keepalive: closing the page does not cut a release off.
        await this.#fetch(base + request.path, { ...init, redirect: "manual", keepalive: request.method === "DELETE" });
    const text = await textOf(response);
    let body: Refusal = {};
    try {
      body = Object(JSON.parse(text));
    } catch {} // no gateway has sent it
    if (isExpected(request, response.status, body)) return body;
    const known = response.status >= 400 && typeof body.code === "string";
    const seconds = /^\d{1,5}$/.exec(response.headers.get("Retry-After") ?? "");
    throw new Problem(response.status, known ? body.code! : unexpectedAnswer, known ? (body.detail ?? body.title ?? "") : text.slice(0, 200),
      body.field ?? "", body.request_id ?? "", Number(seconds ?? 0) * 1000, body);
  }
}

/** Whether it is what a gateway answers to a request that succeeds. A proxy may have answered instead. */
function isExpected(request: Request, status: number, body: Refusal): body is Answer {
  if (request.method === "DELETE") return status === 204;
  if (status < 200 || status > 299) return false;
  if (!request.key && !request.lease) return Array.isArray(body.holders);
  const whole = typeof body.lease_id === "string" && typeof body.state === "string" && (!request.key || typeof body.token === "string");
  return whole && body.ttl_ms! > 0 && (body.waited_ms ?? 0) >= 0;
}

const unexpectedAnswer = "unexpected_answer"; // the code of an answer that is not a gateway's

class NoAnswer extends Error {}

/** Whether the same request may succeed later, or at another gateway. */
function temporary(error: unknown): boolean {
  if (!(error instanceof Problem)) return error instanceof NoAnswer;
  return error.code === unexpectedAnswer || error.status >= 500 || error.status === 429 || error.status === 408;
}

/** Whether a gateway says that the lease is over, or is not this client's. */
function isFinal(error: unknown): error is Problem {
  return error instanceof Problem && error.code !== unexpectedAnswer && [403, 404, 410].includes(error.status);
}

function lostBy(id: string, { body, detail }: Problem): LeaseLost {
  const { reason, by } = body as Refusal;
  return new LeaseLost(id, reason || "gone", by, detail);
}

const unconfirmed = (id: string) => new LeaseLost(id, "deadline", "", "no gateway confirmed it in time");

function heartbeat(lease: string, hold: number, ttl = Infinity): Request {
  const late = Math.min(requestMs, Math.max(ttl / 6, 100)); // for which an answer is waited for
  return { method: "POST", path: `/v1/leases/self/heartbeat${hold > 0 ? `?wait=${millis(hold)}` : ""}`, lease, timeoutMs: hold + late };
}

const leaving = (lease: string): Request => ({ method: "DELETE", path: "/v1/leases/self", lease, timeoutMs: leaveMs });

/** How long before the end of its time a lease is ended. */
function marginOf(marginMs: number | undefined, ttlMs: number): number {
  const margin = marginMs ?? Math.min(1000, ttlMs / 5);
  if (margin >= 0 && 2 * margin < ttlMs) return margin;
  throw new RangeError(`lockkeeper: marginMs (${margin}) must not be negative, and less than half of the TTL (${ttlMs})`);
}

/** A lock as the API takes it. */
function wanted({ namespace, shared, permits, limit }: Mode): object {
  const semaphore = permits !== undefined || limit !== undefined;
  if (shared && semaphore) throw new TypeError("lockkeeper: a lock is either shared or a semaphore: leave shared, or permits and limit, out");
  return { ns: namespace, mode: shared ? "shared" : semaphore ? "semaphore" : undefined, permits, limit };
}

function pathOf(lock: string): string {
  // In a path these mean something else.
  if (lock === "" || lock === "." || lock === "..") throw new TypeError(`lockkeeper: ${JSON.stringify(lock)} is no name of a lock`);
  return `/v1/locks/${encodeURIComponent(lock)}`;
}

/** Checks the URL of a gateway, and gives it without a slash at its end. */
function gatewayURL(text: string): string {
  if (/^unix:./.test(text) && node) return text;
  const wrong = (why: string) => new TypeError(`lockkeeper: ${JSON.stringify(text)} is no URL of a gateway: ${why}`);
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw wrong("it must be like http://127.0.0.1:8080, https://locks.example.com or unix:/run/lockkeeper.sock");
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw wrong(node ? "it must begin with http:, https: or unix:" : "in a browser it must begin with http: or https:");
  if (url.username || url.password || url.search || url.hash) throw new TypeError("lockkeeper: the URL of a gateway must have no user, query or fragment; the token goes into LOCKKEEPER_TOKEN");
  return url.href.replace(/\/$/, "");
}

/** A duration as the API takes it. */
const millis = (ms: number | undefined) => (ms === undefined ? undefined : `${Math.floor(ms)}ms`);

/** Spreads the repeats of many clients. */
const jitter = (ms: number) => ms * (1 + Math.random() / 4);

/** Calls what the caller gave. What it throws is no matter of the lease, and is reported as any unhandled rejection. */
function call<T>(f: ((value: T) => void) | undefined, value: T): void {
  if (f) void Promise.resolve(value).then(f);
}

/** A signal that aborts with the first of its parents, or when the time is over. */
function within(ms: number, ...parents: (AbortSignal | undefined)[]): { signal: AbortSignal; end: () => void } {
  const controller = new AbortController(), stop = new AbortController();
  for (const parent of parents) {
    if (parent?.aborted) controller.abort(parent.reason);
    parent?.addEventListener("abort", () => controller.abort(parent.reason), { signal: stop.signal });
  }
  // A longer timer would end at once.
  const timer = ms < Infinity ? setTimeout(() => controller.abort(new Error(`nothing within ${ms} ms`)), Math.min(ms, 2 ** 31 - 1)) : undefined;
  return { signal: controller.signal, end: () => (clearTimeout(timer), stop.abort()) };
}

/** Resolves when the time is over or signal aborts. */
function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => (clearTimeout(timer), signal.removeEventListener("abort", done), resolve());
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
    if (signal.aborted) done();
  });
}

/** Reads an answer, and gives up on one that no gateway sends. */
async function textOf(response: Response): Promise<string> {
  const reader = response.body?.getReader(), decoder = new TextDecoder();
  let text = "";
  for (let size = 0; reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
    if ((size += value.length) > maxAnswer) return reader.cancel().then(() => Promise.reject(new Error("the answer is too long")));
  }
  return text;
}

// What differs between runtimes. The modules of Node.js are imported when they are needed, by names that no bundler follows.

interface NodeProcess {
  env: Record<string, string | undefined>;
  platform: string;
  versions?: { node?: string };
}
interface NodeFiles {
  readFile(path: string, encoding: "utf8"): Promise<string>;
}
interface NodeEmitter {
  on(event: string, listener: (value: never) => void): void;
}
interface NodeHTTP {
  request(options: object, then: (answer: NodeEmitter & { statusCode: number; headers: Record<string, string> }) => void): NodeEmitter & { end(body: string | null): void };
}

const process = (globalThis as { process?: NodeProcess }).process;
const node = process?.versions?.node ? process : undefined;
const nodeModule = <T>(name: string): Promise<T> => import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);

/** fetch over a Unix socket, which fetch itself cannot. */
async function unixFetch(socketPath: string, path: string, { method, headers, body, signal }: RequestInit): Promise<Response> {
  const { request } = await nodeModule<NodeHTTP>("http");
  return new Promise((resolve, reject) => {
    const sent = request({ socketPath, path, method, headers, signal }, (answer) => {
      const stream = new ReadableStream<Uint8Array>({
        start(controller) {
          answer.on("data", (chunk: Uint8Array) => controller.enqueue(chunk));
          answer.on("end", () => controller.close());
          answer.on("error", (error: Error) => controller.error(error));
        },
      });
      const empty = answer.statusCode === 204 || answer.statusCode === 304;
      resolve(new Response(empty ? null : stream, { status: answer.statusCode, headers: answer.headers }));
    });
    sent.on("error", reject);
    sent.end(body as string | null);
  });
}

/** In milliseconds. It goes on while the machine sleeps. */
let clock: () => number;
let randomBytes: (bytes: Uint8Array) => unknown;
let ready: Promise<void> | undefined;

async function prepare(): Promise<void> {
  const { crypto } = globalThis as { crypto?: Crypto };
  const source = crypto ?? (await nodeModule<{ webcrypto: Crypto }>("crypto")).webcrypto; // Node.js 18 has no global one
  randomBytes = (bytes) => source.getRandomValues(bytes);
  if (node?.platform === "linux") {
    const { uptime } = await nodeModule<{ uptime(): number }>("os");
    clock = () => uptime() * 1000; // CLOCK_BOOTTIME
    return;
  }
  // Whichever of the monotonic clock, which may stand still while the machine sleeps, and the time of day went further since the
  // last look. What is below 10 ms is their resolution.
  let asleep = 0, ahead = Date.now() - performance.now();
  clock = () => {
    const now = performance.now(), skew = Date.now() - now;
    if (skew > ahead + 10) asleep += skew - ahead;
    if (skew > ahead + 10 || skew < ahead) ahead = skew;
    return now + asleep;
  };
}

function randomKey(): string {
  const bytes = new Uint8Array(16);
  randomBytes(bytes);
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

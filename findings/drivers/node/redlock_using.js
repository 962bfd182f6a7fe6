// using() of redlock 5, or with the argument "sesame" of @sesamecare-oss/redlock, for requests without a lease: it extends a hold
// of one second by itself, and its signal says that the hold is lost.
'use strict'
const { serve, No, ioredis } = require('./lockchaos')
const sesame = process.argv[2] === 'sesame'
const { ResourceLockedError, ExecutionError, ...library } = require(sesame ? '@sesamecare-oss/redlock' : 'redlock')
const Redlock = sesame ? library.Redlock : library.default
const holds = new Map()

// refused is whether each server of a failed request said that the lock is held.
async function refused (e) {
  if (!(e instanceof ExecutionError) || e.attempts.length === 0) return false
  const rounds = await Promise.all(e.attempts)
  return rounds.every(round => [...round.votesAgainst.values()].every(v => v instanceof ResourceLockedError))
}

async function ask (what) {
  try { return await what() } catch (e) { throw await refused(e) ? new No(e.message) : e }
}

serve({
  name: sesame ? '@sesamecare-oss/redlock' : 'redlock', promises: { extend: true, release_tells: true, watchdog: true, lost: true }
}, (q, lost) => {
  const redlock = new Redlock(ioredis(q), { retryCount: 10 })
  const once = { retryCount: 0 }
  return {
    async acquire (q, hold) {
      const h = {}
      holds.set(hold, h)
      if (q.lease_ms > 0) {
        const begun = Date.now()
        h.lock = await ask(() => redlock.acquire([q.lock], q.lease_ms, once))
        return { valid_ms: Math.max(0, h.lock.expiration - begun) }
      }
      await new Promise((resolve, reject) => {
        h.done = ask(() => redlock.using([q.lock], 1000, once, signal => {
          signal.addEventListener('abort', () => lost(hold))
          resolve()
          return new Promise(end => { h.end = end })
        }))
        h.done.catch(reject)
      })
    },
    async release (hold) {
      const h = holds.get(hold)
      if (h.lock) return ask(() => redlock.release(h.lock, once))
      h.end()
      await h.done
    },
    async extend (hold, ms) {
      const h = holds.get(hold)
      if (h.lock.expiration < Date.now()) throw new No('the library says that it is over')
      h.lock = await ask(() => redlock.extend(h.lock, ms, once))
    }
  }
})

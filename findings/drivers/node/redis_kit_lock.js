// withLock of @redis-kit/lock. A request without a lease is one of a second with extensionThresholdMs: the library extends it by itself.
// It takes an error for a no, so that a no counts as one only if no request failed meanwhile.
'use strict'
const { serve, No, nodeRedis, within } = require('./lockchaos')
const { Redlock } = require('@redis-kit/lock')
const holds = new Map()

serve({ name: '@redis-kit/lock', promises: { extend: true, watchdog: true } }, async q => {
  const client = await nodeRedis(q)
  const ms = q.timeout_ms
  let failures = 0
  const counted = { eval: (...args) => within(ms, client.eval(...args)).catch(e => { failures++; throw e }) }
  const redlock = new Redlock([counted], { maxRetryAttempts: 0 })
  const refused = before => failures === before ? new No('taken') : new Error('a request failed')
  return {
    async acquire (q, hold) {
      const begun = Date.now()
      const before = failures
      if (!q.lease_ms) {
        const h = {}
        holds.set(hold, h)
        await new Promise((resolve, reject) => {
          h.done = redlock.withLock(q.lock, 1000, () => { resolve(); return new Promise(end => { h.end = end }) }, { extensionThresholdMs: 500 })
          h.done.catch(() => reject(refused(before)))
        })
        return
      }
      const lock = await redlock.acquire(q.lock, q.lease_ms)
      if (!lock) throw refused(before)
      holds.set(hold, { lock })
      return { valid_ms: Math.max(0, lock.expirationTime - begun) }
    },
    async release (hold) {
      const h = holds.get(hold)
      const before = failures
      if (!h.lock) h.end()
      await (h.lock ? h.lock.release() : h.done)
      if (failures !== before) throw new Error('a request failed')
    },
    async extend (hold, lease) {
      const before = failures
      if (!await holds.get(hold).lock.extend(lease)) throw refused(before)
    }
  }
})

// lock(), extend() and unlock() of redlock 4. A no counts as one if no server failed meanwhile, which the library tells by an event.
'use strict'
const { serve, No, ioredis } = require('./lockchaos')
const Redlock = require('redlock')
const holds = new Map()

serve({ name: 'redlock', promises: { extend: true, release_tells: true } }, q => {
  const redlock = new Redlock(ioredis(q), { retryCount: 0 })
  let failures = 0
  redlock.on('clientError', () => failures++)
  async function ask (what) {
    const before = failures
    try { return await what() } catch (e) { throw e.name === 'LockError' && failures === before ? new No(e.message) : e }
  }
  return {
    async acquire (q, hold) {
      const begun = Date.now()
      const lock = await ask(() => redlock.lock(q.lock, q.lease_ms))
      holds.set(hold, lock)
      return { valid_ms: Math.max(0, lock.expiration - begun) }
    },
    release: hold => ask(() => holds.get(hold).unlock()),
    async extend (hold, ms) { holds.set(hold, await ask(() => holds.get(hold).extend(ms))) }
  }
})

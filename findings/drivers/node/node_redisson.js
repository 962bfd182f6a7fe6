// RLock of node-redisson. A request without a lease is one that its watchdog of one second renews.
'use strict'
const { serve, No } = require('./lockchaos')
const { Redisson } = require('node-redisson')
const holds = new Map()

serve({ name: 'node-redisson', promises: { release_tells: true, watchdog: true } }, q => {
  const [host, port] = q.servers[0].addr.split(':')
  const redisson = new Redisson({ redis: { options: { host, port: Number(port), commandTimeout: q.timeout_ms, maxRetriesPerRequest: 1 } }, lockWatchdogTimeout: 1000n })
  return {
    async acquire (q, hold) {
      const lock = redisson.getLock(q.lock) // with a client id of its own
      if (!await lock.tryLock(0n, q.lease_ms ? BigInt(q.lease_ms) : true)) throw new No('taken')
      holds.set(hold, lock)
    },
    async release (hold) {
      try { await holds.get(hold).unlock() } catch (e) { throw /not locked by current/.test(e.message) ? new No(e.message) : e }
    }
  }
})

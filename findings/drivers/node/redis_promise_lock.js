// Lock of redis-promise-lock, whose ttl is in whole seconds.
'use strict'
const { serve, No, nodeRedis, within } = require('./lockchaos')
const { Lock } = require('redis-promise-lock')

serve({ name: 'redis-promise-lock', keys: ['redis-promise-lock:{name}'], promises: {} }, async q => {
  const lock = new Lock(await nodeRedis(q), { retryLimit: 1, retryDelay: 1 })
  const ms = q.timeout_ms
  const names = new Map()
  return {
    async acquire (q, hold) {
      if (!await within(ms, lock.acquireLock(q.lock, { ttl: Math.ceil(q.lease_ms / 1000) }))) throw new No('taken')
      names.set(hold, q.lock)
    },
    release: hold => within(ms, lock.releaseLock(names.get(hold)))
  }
})

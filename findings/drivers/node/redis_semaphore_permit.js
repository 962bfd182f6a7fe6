// Semaphore of redis-semaphore with one permit. Each request has its own lockTimeout: a request without a lease one of two seconds,
// with the default refreshInterval.
'use strict'
const { serve, No, ioredis } = require('./lockchaos')
const { Semaphore } = require('redis-semaphore')
const holds = new Map()

serve({ name: 'redis-semaphore', keys: ['semaphore:{name}'], promises: { watchdog: true, lost: true } }, (q, lost) => {
  const [client] = ioredis(q)
  return {
    async acquire (q, hold) {
      const permit = new Semaphore(client, q.lock, 1, {
        acquireAttemptsLimit: 1, onLockLost: () => lost(hold), ...(q.lease_ms ? { lockTimeout: q.lease_ms, refreshInterval: 0 } : { lockTimeout: 2000 })
      })
      if (!await permit.tryAcquire()) throw new No('taken')
      holds.set(hold, permit)
    },
    release: hold => holds.get(hold).release()
  }
})

// Mutex of redis-semaphore, which extends each hold of one second by itself, and calls onLockLost when an extension failed.
'use strict'
const { serve, No, ioredis } = require('./lockchaos')
const { Mutex } = require('redis-semaphore')
const holds = new Map()

serve({ name: 'redis-semaphore', keys: ['mutex:{name}'], promises: { watchdog: true, lost: true } }, (q, lost) => {
  const [client] = ioredis(q)
  return {
    async acquire (q, hold) {
      const lockTimeout = q.lease_ms || 1000
      const mutex = new Mutex(client, q.lock, { lockTimeout, acquireAttemptsLimit: 1, refreshInterval: q.lease_ms ? 0 : lockTimeout * 0.8, onLockLost: () => lost(hold) })
      if (!await mutex.tryAcquire()) throw new No('taken')
      holds.set(hold, mutex)
    },
    release: hold => holds.get(hold).release()
  }
})

// lock() of simple-redis-mutex 1 with the option fifo, for requests that wait; the versions since 2 have no such option, and
// their lock() is asked without it.
'use strict'
const { serve, No, ioredis, nodeRedis, within } = require('./lockchaos')
const { lock, tryLock } = require('simple-redis-mutex')
const holds = new Map()

serve({ name: 'simple-redis-mutex', keys: ['@simple-redis-mutex:lock-{name}'], promises: { wait: true } }, async q => {
  const client = tryLock ? await nodeRedis(q) : ioredis(q)[0]
  const ms = q.timeout_ms
  return {
    async acquire (q, hold) {
      const wait = Math.max(q.wait_ms, 50)
      const options = tryLock ? { timeout: q.lease_ms, failAfter: wait, pollingInterval: 50 } : { timeoutMillis: q.lease_ms, failAfterMillis: wait, retryTimeMillis: 10, fifo: true }
      holds.set(hold, await within(ms + wait, lock(client, q.lock, options)).catch(e => { throw /could not be acquired/.test(e.message) ? new No(e.message) : e }))
    },
    release: hold => within(ms, holds.get(hold)())
  }
})

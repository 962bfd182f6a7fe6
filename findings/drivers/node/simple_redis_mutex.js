// simple-redis-mutex, which extends for the lease of the grant.
'use strict'
const { serve, No, nodeRedis, within } = require('./lockchaos')
const { tryLock } = require('simple-redis-mutex')
const holds = new Map()

serve({ name: 'simple-redis-mutex', keys: ['@simple-redis-mutex:lock-{name}'], promises: { extend: true, token: true } }, async q => {
  const client = await nodeRedis(q)
  const ms = q.timeout_ms
  return {
    async acquire (q, hold) {
      const [granted, release] = await within(ms, tryLock(client, q.lock, { timeout: q.lease_ms }))
      if (!granted) throw new No('taken')
      holds.set(hold, release)
      return { token: release.fencingToken }
    },
    release: hold => within(ms, holds.get(hold)()),
    extend: hold => within(ms, holds.get(hold).refreshTimeout())
  }
})

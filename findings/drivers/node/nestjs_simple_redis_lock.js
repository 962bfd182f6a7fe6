// RedisLockService of nestjs-simple-redis-lock: one for each process, as Nest makes it.
'use strict'
const { serve, No, ioredis } = require('./lockchaos')
require('reflect-metadata')
const { RedisLockService } = require('nestjs-simple-redis-lock')
const names = new Map()

serve({ name: 'nestjs-simple-redis-lock', keys: ['lock:{name}'], promises: {} }, q => {
  const [client] = ioredis(q)
  const service = new RedisLockService({ getClient: () => client }, {})
  return {
    async acquire (q, hold) {
      if (!await service.lockOnce(q.lock, q.lease_ms)) throw new No('taken')
      names.set(hold, q.lock)
    },
    release: hold => service.unlock(names.get(hold))
  }
})

// The Redis locking provider of Medusa: execute(), for requests without a lease, with the shortest timeout of a second, and
// acquire() and release(). With the argument "owners" each acquire() has an ownerId of its own, and with "none" it has none.
// Of the framework it needs an error class and a Promise.all, which are here: the framework's packages are far larger than the lock.
'use strict'
const Module = require('module')
const load = Module._load
class MedusaError extends Error { constructor (type, message) { super(message); this.type = type } }
MedusaError.Types = { CONFLICT: 'conflict' }
Module._load = (name, ...rest) => name === '@medusajs/framework/utils' ? { MedusaError, promiseAll: all => Promise.all(all) } : load(name, ...rest)
const { serve, No, ioredis } = require('./lockchaos')
const { RedisLockingProvider } = require('@medusajs/locking-redis/dist/services/redis-lock')
const { version } = require('@medusajs/locking-redis/package.json')
const holds = new Map()
const owners = process.argv[2] === 'owners'

const refused = e => { throw e.type === 'conflict' ? new No(e.message) : e }

serve({ name: '@medusajs/locking-redis', version, keys: ['medusa_lock:{name}'], promises: { watchdog: true, lost: true } }, (q, lost) => {
  const [redisClient] = ioredis(q)
  const provider = new RedisLockingProvider({ redisClient, logger: console }, { waitLockingTimeout: 1 })
  return {
    async acquire (q, hold) {
      const h = { name: q.lock, owner: owners ? { ownerId: hold + process.pid } : {} }
      holds.set(hold, h)
      if (q.lease_ms) return provider.acquire(q.lock, { ...h.owner, expire: Math.ceil(q.lease_ms / 1000) }).catch(refused)
      await new Promise((resolve, reject) => {
        h.done = provider.execute(q.lock, signal => {
          signal?.addEventListener('abort', () => lost(hold))
          resolve()
          return new Promise(end => { h.end = end })
        }, { timeout: 1, expire: 1 }).catch(e => { if (!h.end) reject(e) })
      }).catch(refused)
    },
    async release (hold) {
      const h = holds.get(hold)
      if (!h.end) { await provider.release(h.name, h.owner); return }
      h.end()
      await h.done
    }
  }
})

// redis-lock, which asks until it is granted the lock. So that it asks once, its client does not answer again after a refusal.
'use strict'
const { serve, No, nodeRedis, within } = require('./lockchaos')
const holds = new Map()
const never = new Promise(() => {})

serve({ name: 'redis-lock', keys: ['lock.{name}'], promises: {} }, async q => {
  const client = await nodeRedis(q)
  const ms = q.timeout_ms
  return {
    acquire: (q, hold) => new Promise((resolve, reject) => {
      const set = async (...args) => {
        const reply = await client.set(...args)
        if (reply === null) throw new No('taken')
        return reply
      }
      const once = { v4: true, del: key => client.del(key), set: (...args) => set(...args).catch(e => { reject(e); return never }) }
      require('redis-lock')(once)(q.lock, q.lease_ms).then(done => { holds.set(hold, done); resolve({}) })
    }),
    release: hold => within(ms, holds.get(hold)())
  }
})

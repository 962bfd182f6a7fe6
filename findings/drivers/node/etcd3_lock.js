// lock() of etcd3, on etcd. Each hold has a session of its own, which the library keeps alive.
'use strict'
const { serve, No, within } = require('./lockchaos')
const { Etcd3, EtcdLockFailedError } = require('etcd3')
const holds = new Map()

serve({ name: 'etcd3', promises: { store: 'etcd', watchdog: true } }, q => {
  const client = new Etcd3({ hosts: q.servers.map(s => 'http://' + s.addr), dialTimeout: q.timeout_ms })
  const ms = q.timeout_ms
  return {
    async acquire (q, hold) {
      const lock = client.lock(q.lock).ttl(2)
      await within(ms, lock.acquire().catch(e => { throw e instanceof EtcdLockFailedError ? new No(e.message) : e }))
      holds.set(hold, lock)
    },
    release: hold => within(ms, holds.get(hold).release())
  }
})

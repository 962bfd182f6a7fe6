// The driver protocol for a lock in Node, so that a driver is the lock and nothing else: copy this file beside it. serve is given what
// hello says, and a function that opens the lock: an object with acquire(q, hold), release(hold) and, if it promises that,
// extend(hold, ms). An acquire may return fields of its answer; q.signal is aborted where its client gave the request up, of which a
// driver that promises cancel takes heed. No is thrown where the library says no; any other error is an unknown outcome.
'use strict'
const net = require('net')
const readline = require('readline')

class No extends Error {}

const address = server => {
  const at = server.addr.lastIndexOf(':')
  return { host: server.addr.slice(0, at), port: Number(server.addr.slice(at + 1)) }
}

// A client of ioredis for each server; one for the master that sentinels know, and one for a cluster. A request that got no answer
// within the time of the run is given up.
function ioredis (q) {
  const Redis = require('ioredis')
  const again = n => Math.min(n * 50, 300)
  const options = { commandTimeout: q.timeout_ms, connectTimeout: q.timeout_ms, maxRetriesPerRequest: 1, retryStrategy: again }
  const all = q.servers.map(address)
  const clients = q.topology === 'sentinel'
    ? [new Redis({ ...options, sentinels: all, name: q.master, sentinelRetryStrategy: again })]
    : q.topology === 'cluster'
      ? [new Redis.Cluster(all, { redisOptions: options, clusterRetryStrategy: again })]
      : all.map(a => new Redis({ ...a, ...options }))
  clients.forEach(c => c.on('error', () => {}))
  return clients
}

// A client of node-redis for the one server.
async function nodeRedis (q) {
  const socket = { ...address(q.servers[0]), connectTimeout: q.timeout_ms, socketTimeout: q.timeout_ms, reconnectStrategy: n => Math.min(n * 50, 300) }
  const c = require('redis').createClient({ socket, disableOfflineQueue: true })
  c.on('error', () => {})
  await c.connect()
  return c
}

// What a promise comes to, if it does within that time.
const within = (ms, promise) => Promise.race([promise, new Promise((resolve, reject) => setTimeout(reject, ms, new Error('no answer in time')))])

function serve (hello, open) {
  const conn = net.connect(process.env.LOCKCHAOS_SOCKET)
  conn.on('error', () => process.exit())
  const say = message => conn.write(JSON.stringify(message) + '\n')
  const asked = new Map() // what a client can still give up
  let lock
  readline.createInterface({ input: conn }).on('line', async line => {
    const q = JSON.parse(line)
    if (q.op === 'hello') {
      if (q.servers) lock = await open(q, hold => say({ event: 'lost', hold }))
      return say({ protocol: 2, language: 'node', version: process.env.LOCKCHAOS_VERSION, parallel: 32, keys: ['{name}'], ...hello, re: q.id })
    }
    if (q.op === 'cancel') return asked.get(q.id)?.abort()
    let said = { result: 'ok' }
    try {
      if (q.op === 'acquire') {
        asked.set(q.id, new AbortController())
        q.signal = asked.get(q.id).signal
        said = { ...said, hold: 'h' + q.id, ...await lock.acquire(q, 'h' + q.id) }
      } else if (q.op === 'release') await lock.release(q.hold)
      else if (q.op === 'extend' && lock.extend) await lock.extend(q.hold, q.lease_ms)
      else if (q.op !== 'ping') said = { result: 'unsupported' }
    } catch (e) {
      said = { result: e instanceof No ? 'fail' : 'info', why: `${e.name}: ${e.message}`.slice(0, 300) }
    }
    asked.delete(q.id)
    say({ ...said, re: q.id })
  }).on('close', () => process.exit())
}

module.exports = { serve, No, address, ioredis, nodeRedis, within }

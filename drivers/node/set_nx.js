// A lock of SET NX PX and two scripts over a socket, on one server, for which Node is enough: lockchaos run --lock 'exec:node drivers/node/set_nx.js'
'use strict'
const net = require('net')
const { randomUUID } = require('crypto')
const { serve, No, address } = require('./lockchaos')

const RELEASE = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"
const EXTEND = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0"

serve({ name: 'set-nx', promises: { extend: true, release_tells: true } }, hello => {
  const holds = new Map()
  // Each request has a connection of its own, so that no late reply is taken for that of another one.
  const ask = (...words) => new Promise((resolve, reject) => {
    const c = net.connect(address(hello.servers[0]))
    let reply = ''
    c.setTimeout(hello.timeout_ms, () => c.destroy(new Error('no reply in time')))
    c.on('error', reject).on('close', () => reject(new Error('closed'))).on('data', data => {
      reply += data
      if (!reply.endsWith('\r\n')) return
      c.destroy()
      reply[0] === '-' ? reject(new Error(reply)) : resolve(reply.trim())
    })
    c.write(`*${words.length}\r\n` + words.map(w => `$${Buffer.byteLength(`${w}`)}\r\n${w}\r\n`).join(''))
  })
  const held = async reply => { if (await reply !== ':1') throw new No('not held') }
  return {
    async acquire (q, hold) {
      const held = [q.lock, randomUUID()]
      if (await ask('SET', ...held, 'NX', 'PX', q.lease_ms) !== '+OK') throw new No('taken')
      holds.set(hold, held)
    },
    release: hold => held(ask('EVAL', RELEASE, 1, ...holds.get(hold))),
    extend: (hold, ms) => held(ask('EVAL', EXTEND, 1, ...holds.get(hold), ms))
  }
})

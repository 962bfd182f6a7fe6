// tryTake of a DistributedSemaphore with one permit. A request without a lease is one of a second, which a fiber renews until it
// fails, as the library tells of a loss. Each lease is the ttl of a semaphore of its own.
'use strict'
const { serve, No, ioredis } = require('./lockchaos')
const holds = new Map()

serve({ name: 'effect-distributed-lock', keys: ['semaphore:{name}'], promises: { watchdog: true, lost: true } }, async (q, lost) => {
  const { Effect, Exit, Fiber, Option, Scope } = await import('effect')
  const { DistributedSemaphore, RedisBacking } = await import('effect-distributed-lock')
  const [client] = ioredis(q)
  const run = effect => Effect.runPromise(Effect.provide(effect, RedisBacking.layer(client, { pushBasedAcquireEnabled: false })))
  return {
    async acquire (q, hold) {
      const ttl = q.lease_ms || 1000
      const scope = await Effect.runPromise(Scope.make())
      const semaphore = await run(DistributedSemaphore.make(q.lock, { limit: 1, ttl, refreshInterval: q.lease_ms ? 3600000 : ttl / 3 }))
      const taken = await run(Scope.extend(semaphore.tryTake(1), scope))
      if (Option.isNone(taken)) throw new No('taken')
      holds.set(hold, () => Effect.runPromise(Scope.close(scope, Exit.void)))
      Effect.runFork(Fiber.await(taken.value)).addObserver(end => { if (Exit.isSuccess(end) && Exit.isFailure(end.value) && !Exit.isInterrupted(end.value)) lost(hold) })
    },
    release: hold => holds.get(hold)()
  }
})

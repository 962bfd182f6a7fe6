package lock

// Scripts returns the source of every script that this package runs, by the name
// of its file without the suffix: "acquire", "fair_release". A server names them
// by the SHA-1 of that, in SLOWLOG and MONITOR for instance, and can be given
// them ahead of their first use with SCRIPT LOAD.
func Scripts() map[string]string {
	return map[string]string{
		"acquire": freeLua + hashLua + ticketsLua + acquireLua,
		"extend":  extendLua,
		"release": soleLua + hashLua + ticketsLua + releaseLua,
		"force":   hashLua + ticketsLua + forceLua,
		"inspect": inspectLua,

		"fair_acquire": hashLua + fairQueueLua + fairAcquireLua,
		"fair_release": hashLua + fairQueueLua + fairReleaseLua,
		"fair_force":   hashLua + fairQueueLua + fairForceLua,
		"fair_waiters": fairWaitersLua,

		"rw_acquire": rwStateLua + rwAcquireLua,
		"rw_extend":  rwStateLua + rwExtendLua,
		"rw_release": rwStateLua + rwReleaseLua,
		"rw_force":   rwStateLua + rwForceLua,
		"rw_inspect": rwStateLua + rwInspectLua,

		"semaphore_acquire": semaphoreLua + semaphoreAcquireLua,
		"semaphore_extend":  semaphoreLua + semaphoreExtendLua,
		"semaphore_release": semaphoreLua + semaphoreReleaseLua,
		"semaphore_give":    semaphoreLua + semaphoreGiveLua,
		"semaphore_size":    semaphoreLua + semaphoreSizeLua,
		"semaphore_delete":  semaphoreLua + semaphoreDeleteLua,
		"semaphore_inspect": semaphoreLua + semaphoreInspectLua,

		"latch_set":    latchSetLua,
		"latch_down":   latchDownLua,
		"latch_count":  latchCountLua,
		"latch_delete": latchDeleteLua,
	}
}

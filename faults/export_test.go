package faults

import "github.com/lockchaos/lockchaos/topologies"

// MigrateSlot moves the slot of a key between some servers of a cluster.
func MigrateSlot(servers []topologies.Server, key string) Fault {
	return Fault{"migrate-slot", (&slotMigration{servers, key}).inject}
}

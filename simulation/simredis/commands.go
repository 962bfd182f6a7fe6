package simredis

import "sync"

//nolint:gochecknoglobals // built once, never changed: each request looks a command up
var known struct {
	once sync.Once
	all  map[string]*command
}

// commands is the table of all commands by their names in lower and in upper case.
func commands() map[string]*command {
	known.once.Do(func() {
		known.all = index(connectionCommands(), transactionCommands(), pubSubCommands(), serverCommands(), clusterCommands(),
			keyCommands(), stringCommands(), hashCommands(), sortedSetCommands(), listCommands(), setCommands(), scriptCommands())
	})
	return known.all
}

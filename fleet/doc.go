// Package fleet divides a campaign, which is many runs of one command, over processes and machines: each
// plays a shard, and notes its finished runs in a journal, which survives the end of the process at any
// moment. Join makes one campaign of the journals again, and names what was never played.
package fleet

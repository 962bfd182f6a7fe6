package simredis

import (
	"slices"
	"strconv"
)

// Server is one Redis process.
type Server struct {
	host    Host
	replica bool
	offset  int64 // of replication: bytes written as a master, or applied as a replica

	keys     map[string]*value
	scripts  map[string]*program // by SHA-1
	sessions []*Session
	channels map[string][]*Session // who subscribed, by name
	watched  map[string][]*Session
	waiting  []*blocked // sessions that WAIT
	popping  map[string][]*blocked
	pushed   []string // keys of lists that got elements while a session waits for some
	runnable []*Session
	lastID   int64
	random   uint64 // state of math.random of scripts
	vm       *vm

	// While a command runs:
	now, micros int64 // frozen
	busy        bool
	depth       int      // > 0 in a transaction or script
	session     *Session // whose it is
	applying    bool     // it comes from the master
	script      bool     // it is called by a script
	readsOnly   bool     // which may write nothing
	batch       [][]string
}

// New returns an empty server.
func New(h Host) *Server {
	s := &Server{host: h, random: 0x1234ABCD330E}
	s.Flush()
	s.forget()
	return s
}

// SetCluster makes the server a node of a cluster, whose messages to the other nodes bus
// takes.
func (s *Server) SetCluster(c *Cluster, bus func(channel, message string)) {
	s.host.Cluster, s.host.Bus = c, bus
}

// Close gives what the server holds back for the use of others. Every method
// still works.
func (s *Server) Close() { s.closeVM() }

func (s *Server) forget() {
	s.scripts = map[string]*program{}
	s.channels = map[string][]*Session{}
	s.watched = map[string][]*Session{}
	s.popping = map[string][]*blocked{}
	s.waiting, s.pushed, s.runnable, s.sessions = nil, nil, nil, nil
}

// Flush deletes all keys, and tells no replica.
func (s *Server) Flush() { s.keys = map[string]*value{} }

// Crash ends the process: sessions and scripts are gone, what has not been
// propagated stays unpropagated. keep tells whether the keys are on disk.
// Sessions get nothing any more.
func (s *Server) Crash(keep bool) {
	for _, c := range slices.Clone(s.sessions) {
		c.Close()
	}
	s.forget()
	s.batch = nil
	if !keep {
		s.Flush()
		s.offset = 0
	}
}

// CopyFrom makes the data set and the offset those of another server, as a full
// synchronization does. Clients that watch a key are told that it changed.
func (s *Server) CopyFrom(o *Server) {
	for k := range s.watched {
		s.touch(k)
	}
	s.keys = make(map[string]*value, len(o.keys))
	for k, v := range o.keys {
		s.keys[k] = v.clone()
	}
	s.offset = o.offset
}

// SetReplica makes the server a replica, which refuses writes of clients and
// leaves it to its master to delete expired keys, or a master.
func (s *Server) SetReplica(replica bool) {
	s.replica = replica
	for _, c := range slices.Clone(s.sessions) {
		if replica && c.blocked != nil {
			s.unblock(c.blocked, Error("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"))
		}
	}
}

// Offset is how far the server is in the stream of replication, in bytes.
func (s *Server) Offset() int64 { return s.offset }

// Apply carries out what the master wrote, whatever the offsets are.
func (s *Server) Apply(b Batch) {
	s.begin(nil)
	s.applying = true
	for _, args := range b.Commands {
		if c := find(args); c != nil {
			c.run(s, args)
		}
	}
	s.applying = false
	s.busy = false
	s.offset = b.End
}

// Do runs one command that comes from no connection.
func (s *Server) Do(args ...string) any {
	s.begin(nil)
	r := s.process(nil, args)
	s.end()
	s.resume()
	return r
}

func (s *Server) begin(c *Session) {
	s.micros = s.host.Now()
	s.now = s.micros / 1000
	s.session, s.busy = c, true
}

// end propagates what the command wrote.
func (s *Server) end() {
	s.serveLists()
	s.session, s.busy = nil, false
	if len(s.batch) == 0 {
		return
	}
	b := Batch{Start: s.offset, Commands: s.batch}
	for _, args := range b.Commands {
		size := 3 + len(strconv.Itoa(len(args)))
		for _, a := range args {
			size += 5 + len(strconv.Itoa(len(a))) + len(a)
		}
		s.offset += int64(size)
	}
	b.End = s.offset
	s.batch = nil
	s.host.Propagate(b)
}

// wrote notes that a command changed a key: args go to the replicas.
func (s *Server) wrote(key string, args ...string) {
	s.touch(key)
	s.propagate(args...)
}

func (s *Server) propagate(args ...string) {
	if !s.applying && !s.replica {
		s.batch = append(s.batch, args)
	}
}

// touch makes the transactions that watch a key fail.
func (s *Server) touch(key string) {
	for _, c := range s.watched[key] {
		c.dirty = true
	}
}

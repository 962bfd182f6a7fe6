package world

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/names"
)

// The faults of a world. Those that the harness can inject on real servers have the
// same names in package faults.
const (
	Stall         = "stall"                // a link: nothing passes for a while, and then all of it
	Cut           = "cut"                  // a link: connections are reset, and new ones refused
	Reset         = "reset"                // a link: connections are reset, once
	DropCommand   = "drop-command"         // a link: one request is lost, and its connection reset
	DropReply     = "drop-reply"           // a link: the reply to one request is lost, and its connection reset
	DelayCommand  = "delay-command"        // a link: one request is late by By, and what follows it
	DelayReply    = "delay-reply"          // a link: the reply to one request is late by By, and what follows it
	RepeatCommand = "repeat-command"       // a link: one request is sent a second time on another connection, By later, and no reply to that copy is read
	Pause         = "pause"                // a server stands still
	Kill          = "kill"                 // a server is gone for a while; its data are lost unless Keep is set
	Flush         = "flush"                // a server: FLUSHALL
	ClockForward  = "clock-forward"        // a server's clock is ahead by By
	ClockBack     = "clock-back"           // a server's clock is behind by By
	ClockRate     = "clock-rate"           // a server's clock is faster by Percent, slower below 0
	CrashFailover = "crash-failover"       // the master dies and a replica is promoted after By
	SplitBrain    = "split-brain"          // a replica is promoted after By, while the master goes on, which no other node of a cluster reaches
	PauseClient   = "pause-client"         // a zone: its process stands still
	KillClient    = "kill-client"          // a zone: its process is gone for good; what it has sent still arrives
	ClientForward = "client-clock-forward" // a zone: the wall clock of its machine is ahead by By; see [Zone.Clock]
	ClientBack    = "client-clock-back"    // a zone: the wall clock of its machine is behind by By
	ClientSlow    = "client-clock-slow"    // a zone: the clock of its machine loses Percent of all time
)

// What a fault is aimed at and how long it goes on.
const (
	onLink     = 1 << iota
	ofMessage  // of one request
	onClient   // a zone
	lasts      // for [Fault.For]
	amongNodes // the nodes of a cluster may notice it
)

//nolint:gochecknoglobals // a constant
var kinds = map[string]int{
	Stall: onLink | lasts, Cut: onLink | lasts, Reset: onLink,
	DropCommand: onLink | ofMessage, DropReply: onLink | ofMessage, DelayCommand: onLink | ofMessage, DelayReply: onLink | ofMessage,
	RepeatCommand: onLink | ofMessage,
	Pause:         lasts | amongNodes, Kill: lasts | amongNodes, Flush: 0,
	ClockForward: lasts, ClockBack: lasts, ClockRate: lasts,
	CrashFailover: lasts | amongNodes, SplitBrain: lasts | amongNodes,
	PauseClient: onClient | lasts, KillClient: onClient,
	ClientForward: onClient | lasts, ClientBack: onClient | lasts, ClientSlow: onClient | lasts,
}

// Kinds lists the faults, in order of name.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// OnLink reports whether faults of that name are aimed at a link.
func OnLink(name string) bool { return kinds[name]&onLink != 0 }

// OfMessage reports whether faults of that name are of one request.
func OfMessage(name string) bool { return kinds[name]&ofMessage != 0 }

// Lasts reports whether faults of that name last for [Fault.For].
func Lasts(name string) bool { return kinds[name]&lasts != 0 }

// amongNodes reports whether the nodes of a cluster may notice the fault.
func (f Fault) amongNodes() bool {
	return kinds[f.Name]&amongNodes != 0 || OnLink(f.Name) && strings.HasSuffix(f.Target, busSuffix)
}

// TheMaster is the target of a fault that is aimed at whichever server is the master
// when it begins.
const TheMaster = "master"

// A Fault is one thing that goes wrong, as plain data.
type Fault struct {
	// Name is one of [Kinds].
	Name string `json:"fault"`
	// At is when it begins, from the start of the run; with After, from when on events
	// are counted.
	At time.Duration `json:"at"`
	// After is the event at which it begins instead. Nil: none, and of a fault of one
	// request the next request on the link.
	After *Anchor `json:"after,omitempty"`
	// For is how long it lasts; of [CrashFailover] and [SplitBrain], until the old master
	// is back as a replica.
	For time.Duration `json:"for,omitempty"`
	// Target is a server, a zone, or a link such as zone-a>redis-1, in which the party
	// that dials comes first. [TheMaster] may stand for a server.
	Target string `json:"target,omitempty"`
	// Stream is the direction in which a link stalls: [Upstream], [Downstream], or both,
	// which an empty one is too.
	Stream string `json:"stream,omitempty"`
	// By is how late a message is, how wrong a clock, or how long a promotion takes; the
	// nodes of a cluster take the time that their election takes.
	By time.Duration `json:"by,omitempty"`
	// Percent is by how much a clock is too fast; of [ClientSlow], too slow.
	Percent int `json:"percent,omitempty"`
	// Keep says that a killed server keeps its data.
	Keep bool `json:"keep,omitempty"`
	// Lag is for how long nothing that the master writes has reached its replicas when
	// it dies.
	Lag time.Duration `json:"lag,omitempty"`
}

// An Anchor is an event at which a fault begins.
type Anchor struct {
	// Event is [Request] or [Write].
	Event string `json:"event"`
	// Of is the link of the requests, or the server that writes. Empty: the fault's
	// target.
	Of string `json:"of,omitempty"`
	// Nth is which of them it is, from 1; 0 is 1.
	Nth int `json:"nth,omitempty"`
	// Command is the name of the command that is counted, in upper case. Empty: any.
	Command string `json:"command,omitempty"`
	// Fresh counts only requests that were not sent on the link before with the same arguments: of a client
	// that polls, that leaves those which may change something.
	Fresh bool `json:"fresh,omitempty"`
}

// The events that can be counted.
const (
	Request = "request" // a client sends a request, or several in one go
	Write   = "write"   // a command changes the data of a server
)

// The directions of a link.
const (
	Upstream   = "upstream"   // from the party that dials
	Downstream = "downstream" // to it
	Both       = "both"
)

// anchor is the event at which the fault begins, with its defaults; false if it begins
// at a time.
func (f Fault) anchor() (Anchor, bool) {
	if f.After == nil && !OfMessage(f.Name) {
		return Anchor{}, false
	}
	a := Anchor{Event: Request}
	if f.After != nil {
		a = *f.After
	}
	if a.Of == "" {
		a.Of = f.Target
	}
	a.Nth = max(a.Nth, 1)
	return a, true
}

// String is the fault on one line.
func (f Fault) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "at %v", f.At)
	if a, ok := f.anchor(); ok {
		event := a.Event
		if a.Fresh {
			event = "fresh " + event
		}
		fmt.Fprintf(&s, ", %s %d", event, a.Nth)
		if a.Command != "" {
			fmt.Fprintf(&s, " with %s", a.Command)
		}
		if a.Of != f.Target {
			fmt.Fprintf(&s, " of %s", a.Of)
		}
	}
	fmt.Fprintf(&s, ": %s", f.Name)
	if f.Target != "" {
		fmt.Fprintf(&s, " %s", f.Target)
	}
	if f.Stream != "" && f.Stream != Both {
		fmt.Fprintf(&s, " %s", f.Stream)
	}
	if f.Lag > 0 {
		fmt.Fprintf(&s, ", replication silent for %v", f.Lag)
	}
	if f.By > 0 {
		fmt.Fprintf(&s, " by %v", f.By)
	}
	if f.Percent != 0 {
		fmt.Fprintf(&s, " by %d%%", f.Percent)
	}
	if f.For > 0 {
		fmt.Fprintf(&s, " for %v", f.For)
	}
	if f.Keep {
		s.WriteString(", data kept")
	}
	return s.String()
}

// Validate joins what is wrong with the fault in this world.
func (w *World) Validate(f Fault) error {
	var errs []error
	if _, known := kinds[f.Name]; !known {
		return names.Unknown("simulated fault", f.Name, Kinds())
	}
	server := func(what, name string) {
		if n := w.node(name); name != TheMaster && (n == nil || n == w.sentinel) {
			errs = append(errs, fmt.Errorf("%s %q is no server", what, name))
		}
	}
	link := func(what, name string) {
		from, to, ok := strings.Cut(name, ">")
		if w.cluster != nil && w.node(from) != nil {
			to = strings.TrimSuffix(to, busSuffix)
		}
		if dialled := w.node(to); !ok || dialled == nil || dialled == w.sentinel || w.zones[from] == nil && w.node(from) == nil {
			errs = append(errs, fmt.Errorf("%s %q is no link, such as zone-a>redis-1", what, name))
		}
	}
	switch {
	case OnLink(f.Name):
		link("target", f.Target)
	case kinds[f.Name]&onClient != 0:
		if w.zones[f.Target] == nil {
			errs = append(errs, fmt.Errorf("target %q is no zone", f.Target))
		}
	case f.Name == CrashFailover || f.Name == SplitBrain:
		if w.sentinel == nil && w.cluster == nil {
			errs = append(errs, errors.New("there is nothing to fail over to"))
		}
	default:
		server("target", f.Target)
	}
	if a, ok := f.anchor(); ok {
		switch {
		case OfMessage(f.Name) && (a.Event != Request || a.Of != f.Target):
			errs = append(errs, errors.New("it is of a request on its own link"))
		case a.Event == Request:
			link("the requests of", a.Of)
		case a.Event == Write:
			server("the writes of", a.Of)
		default:
			errs = append(errs, names.Unknown("event", a.Event, []string{Request, Write}))
		}
	}
	if f.At < 0 || f.For < 0 || f.By < 0 || f.Lag < 0 {
		errs = append(errs, errors.New("no time may be below 0"))
	}
	if f.Percent < -90 || f.Percent > 1000 {
		errs = append(errs, fmt.Errorf("percent must be from -90 to 1000, not %d", f.Percent))
	}
	if !slices.Contains([]string{"", Upstream, Downstream, Both}, f.Stream) {
		errs = append(errs, names.Unknown("stream", f.Stream, []string{Upstream, Downstream, Both}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}
